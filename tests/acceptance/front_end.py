"""Simulate a notebook front end that uses only comm messages, as VS Code's renderer does, without a Jupyter server."""

from __future__ import annotations

import json
import time

import zmq

from tests.support import eventually

_PAGE = """() => {
  const begin = window.setInterval, end = window.clearInterval
  window.timers = new Set()
  window.setInterval = (...given) => { const timer = begin(...given); timers.add(timer); return timer }
  window.clearInterval = timer => { timers.delete(timer); end(timer) }
  window.models = {}
  window.opened = (comm, state) => {
    const listeners = {}
    let changed = {}
    const model = {
      get: name => state[name], set: (name, value) => { state[name] = changed[name] = value },
      save_changes() { stateToKernel(comm, JSON.stringify(changed)); changed = {} },
      on: (name, call) => (listeners[name] ??= new Set()).add(call), off: (name, call) => listeners[name]?.delete(call),
      send: content => toKernel(comm, JSON.stringify(content)),
    }
    models[comm] = { model, state, emit: (name, ...given) => listeners[name]?.forEach(call => call(...given)) }
  }
  window.shown = async comm => {
    const { model, state } = models[comm], el = document.createElement('div'), style = document.createElement('style')
    style.textContent = state._css
    document.body.append(style, el)
    const script = URL.createObjectURL(new Blob([state._esm], { type: 'text/javascript' }))
    models[comm].removed = await (await import(script)).default.render({ model, el })
  }
}"""


class FrontEnd:
    """Connect the page of one document to a kernel.

    Messages are received while the test waits with `until`. The sockets are the client's, used without its event loop.
    """

    def __init__(self, client, page):
        self.client, self.page = client, page
        self.open, self.closed = {}, set()
        self.received, self.sent, self.external_requests = [], [], []
        self._iopub = zmq.Socket.shadow(client.iopub_channel.socket)
        self._shell = zmq.Socket.shadow(client.shell_channel.socket)
        page.on(
            "request",
            lambda one: (
                self.external_requests.append(one.url)
                if not one.url.startswith(("blob:", "about:"))
                else None
            ),
        )
        page.context.set_offline(True)
        page.goto("about:blank")
        page.expose_function("toKernel", self.comm_message)
        page.expose_function("stateToKernel", self.comm_state)
        page.evaluate(_PAGE)

    def send(self, kind, metadata=None, **content):
        """Send a message to the kernel and return its id."""
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.client.session.send(self._shell, message)
        return message["header"]["msg_id"]

    def comm_message(self, comm, content):
        self.sent.append(content)
        self.send("comm_msg", comm_id=comm, data={"method": "custom", "content": json.loads(content)})

    def comm_state(self, comm, state):
        data = {"method": "update", "state": json.loads(state), "buffer_paths": []}
        self.send("comm_msg", comm_id=comm, data=data)

    def execute(self, code):
        return self.send(
            "execute_request", code=code, silent=False, store_history=True, user_expressions={}, allow_stdin=False,
            stop_on_error=True,
        )  # fmt: skip

    def run(self, code, timeout=60):
        """Execute a cell and return its messages once it has finished."""
        message_id, first = self.execute(code), len(self.received)

        def replies():
            return [one for one in self.received[first:] if one["parent_header"].get("msg_id") == message_id]

        self.until(lambda: any(one["content"].get("execution_state") == "idle" for one in replies()), timeout)
        errors = [one["content"]["evalue"] for one in replies() if one["msg_type"] == "error"]
        assert not errors, errors
        return replies()

    def until(self, check, timeout=60):
        def receive_and_check():
            self.receive()
            self.page.wait_for_timeout(30)  # lets the page deliver its own messages
            return check()

        return eventually(receive_and_check, timeout=timeout, every=0.0)

    def receive(self):
        for socket in (self._iopub, self._shell):
            while socket.poll(0):
                _, message = self.client.session.recv(socket, zmq.NOBLOCK)
                self.received.append(message)
                self._handle(message["msg_type"], message["content"], message["buffers"])

    def _handle(self, kind, content, buffers):
        comm, data = content.get("comm_id"), content.get("data", {})
        if kind == "comm_open" and content["target_name"] == "jupyter.widget":
            self.open[comm] = with_buffers(data["state"], data.get("buffer_paths", []), buffers)
            self.page.evaluate("([comm, state]) => opened(comm, state)", [comm, self.open[comm]])
        elif kind == "comm_msg" and comm in self.open and data.get("method") == "custom":
            self.page.evaluate(
                "([comm, content]) => models[comm].emit('msg:custom', content)", [comm, data["content"]]
            )
        elif kind == "comm_close" and comm in self.open:
            self.closed.add(comm)
            self.page.evaluate("comm => models[comm].emit('comm_live_update')", comm)

    def show(self, comm):
        self.page.evaluate("comm => shown(comm)", comm)

    def states(self):
        """Return the state of every widget over the control comm, as a reopened document requests it."""
        comm, first = f"control-{time.monotonic_ns()}", len(self.received)
        version, name = {"version": "1.0.0"}, "jupyter.widget.control"
        self.send("comm_open", version, comm_id=comm, target_name=name, data={})
        self.send("comm_msg", comm_id=comm, data={"method": "request_states"})
        reply = self.until(
            lambda: next(
                (one for one in self.received[first:] if one["content"].get("comm_id") == comm and "data" in one["content"]),
                None,
            )
        )  # fmt: skip
        return reply["content"]["data"]["states"]


def with_buffers(state, paths, buffers):
    """Return the state with its binary buffers inserted at their paths."""
    for path, buffer in zip(paths, buffers, strict=True):
        target = state
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = bytes(buffer)
    return state
