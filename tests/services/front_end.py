"""A front end of comm messages alone, as VS Code's renderer has: no Jupyter server, no extension, no network."""

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
    const heard = {}
    const model = {
      get: name => state[name], set: (name, value) => { state[name] = value }, save_changes() {},
      on: (name, call) => (heard[name] ??= new Set()).add(call), off: (name, call) => heard[name]?.delete(call),
      send: content => toKernel(comm, JSON.stringify(content)),
    }
    models[comm] = { model, state, say: (name, ...given) => heard[name]?.forEach(call => call(...given)) }
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
    """The page of one document: models by comm, what the kernel said, what was asked of anybody but it.

    Messages are read while the test waits with `until`; the sockets are the client's, used without its event loop.
    """

    def __init__(self, client, page):
        self.client, self.page = client, page
        self.open, self.closed, self.said, self.asked, self.elsewhere = {}, set(), [], [], []
        self._iopub = zmq.Socket.shadow(client.iopub_channel.socket)
        self._shell = zmq.Socket.shadow(client.shell_channel.socket)
        page.on(
            "request",
            lambda one: (
                self.elsewhere.append(one.url) if not one.url.startswith(("blob:", "about:")) else None
            ),
        )
        page.context.set_offline(True)
        page.goto("about:blank")
        page.expose_function("toKernel", self.comm_message)
        page.evaluate(_PAGE)

    def send(self, kind, metadata=None, **content):
        """A message to the kernel; its id."""
        message = self.client.session.msg(kind, content, metadata=metadata)
        self.client.session.send(self._shell, message)
        return message["header"]["msg_id"]

    def comm_message(self, comm, content):
        self.asked.append(content)
        self.send("comm_msg", comm_id=comm, data={"method": "custom", "content": json.loads(content)})

    def execute(self, code):
        return self.send(
            "execute_request", code=code, silent=False, store_history=True, user_expressions={}, allow_stdin=False,
            stop_on_error=True,
        )  # fmt: skip

    def run(self, code, timeout=60):
        """What a cell brings, up to its end."""
        asked, first = self.execute(code), len(self.said)

        def mine():
            return [one for one in self.said[first:] if one["parent_header"].get("msg_id") == asked]

        self.until(lambda: any(one["content"].get("execution_state") == "idle" for one in mine()), timeout)
        wrong = [one["content"]["evalue"] for one in mine() if one["msg_type"] == "error"]
        assert not wrong, wrong
        return mine()

    def until(self, check, timeout=20):
        def looked():
            self.hear()
            self.page.wait_for_timeout(30)  # the page's own messages are handed over meanwhile
            return check()

        return eventually(looked, timeout=timeout, every=0.0)

    def hear(self):
        for socket in (self._iopub, self._shell):
            while socket.poll(0):
                _, message = self.client.session.recv(socket, zmq.NOBLOCK)
                self.said.append(message)
                self._took(message["msg_type"], message["content"], message["buffers"])

    def _took(self, kind, content, buffers):
        comm, data = content.get("comm_id"), content.get("data", {})
        if kind == "comm_open" and content["target_name"] == "jupyter.widget":
            self.open[comm] = whole(data["state"], data.get("buffer_paths", []), buffers)
            self.page.evaluate("([comm, state]) => opened(comm, state)", [comm, self.open[comm]])
        elif kind == "comm_msg" and comm in self.open and data.get("method") == "custom":
            self.page.evaluate(
                "([comm, said]) => models[comm].say('msg:custom', said)", [comm, data["content"]]
            )
        elif kind == "comm_close" and comm in self.open:
            self.closed.add(comm)
            self.page.evaluate("comm => models[comm].say('comm_live_update')", comm)

    def show(self, comm):
        self.page.evaluate("comm => shown(comm)", comm)

    def states(self):
        """What a document that is opened anew asks for: the state of every widget, over the control comm."""
        comm, first = f"control-{time.monotonic_ns()}", len(self.said)
        version, name = {"version": "1.0.0"}, "jupyter.widget.control"
        self.send("comm_open", version, comm_id=comm, target_name=name, data={})
        self.send("comm_msg", comm_id=comm, data={"method": "request_states"})
        answer = self.until(
            lambda: next(
                (one for one in self.said[first:] if one["content"].get("comm_id") == comm and "data" in one["content"]),
                None,
            )
        )  # fmt: skip
        return answer["content"]["data"]["states"]


def whole(state, paths, buffers):
    """The state with its buffers put back where they were taken out."""
    for path, buffer in zip(paths, buffers, strict=True):
        place = state
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = bytes(buffer)
    return state
