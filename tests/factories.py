"""Create objects of the product; all options are keywords, including the fields of a settings object."""

from __future__ import annotations

import os
from dataclasses import fields

from producer_core.delivery.exactly_once.transactional_transport import (
    TransactionalTransport,
    TransactionLimits,
)
from producer_core.delivery.loss_detection import AckedLogMonitor
from producer_core.delivery.loss_detection.monitor import MonitorSettings
from producer_core.replay import ReplayRunner
from producer_core.replay.runner import RunnerSettings

CORE = "PRODUCER_CORE_TEST_CORE"
"""The environment variable with the core of the transactional transports that name none, also in child processes."""


def replay_runner(store, sender, **options):
    """Return a ReplayRunner; `options` may include fields of RunnerSettings."""
    settings, others = split_options(RunnerSettings, options)
    return ReplayRunner(store, sender, settings=settings, **others)


def loss_monitor(queries, report, *, made=AckedLogMonitor, **options):
    """Return an AckedLogMonitor; `options` may include fields of MonitorSettings."""
    settings, others = split_options(MonitorSettings, options)
    return made(queries, report, settings=settings, **others)


def transactional_transport(config, listener, **options):
    """Return a TransactionalTransport; `options` may include fields of TransactionLimits."""
    limits, others = split_options(TransactionLimits, options)
    others.setdefault("core", os.environ.get(CORE, "python"))
    return TransactionalTransport(config, listener, limits=limits, **others)


def split_options(settings, options):
    """Return an instance of `settings` with the options that are its fields, and the other options."""
    names = {field.name for field in fields(settings)}
    others = {name: value for name, value in options.items() if name not in names}
    return settings(**{name: value for name, value in options.items() if name in names}), others
