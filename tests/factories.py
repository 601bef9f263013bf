"""Objects of the product as tests make them: options by name, also those that the product groups in a settings object."""

from __future__ import annotations

from dataclasses import fields

from producer_core.delivery.exactly_once.transactional_transport import (
    TransactionalTransport,
    TransactionLimits,
)
from producer_core.delivery.loss_detection import AckedLogMonitor
from producer_core.delivery.loss_detection.monitor import MonitorSettings
from producer_core.replay import ReplayRunner
from producer_core.replay.runner import RunnerSettings


def replay_runner(store, sender, **options):
    """A ReplayRunner; the names of RunnerSettings are options too."""
    settings, others = grouped(RunnerSettings, options)
    return ReplayRunner(store, sender, settings=settings, **others)


def loss_monitor(queries, report, *, made=AckedLogMonitor, **options):
    """An AckedLogMonitor; the names of MonitorSettings are options too."""
    settings, others = grouped(MonitorSettings, options)
    return made(queries, report, settings=settings, **others)


def transactional_transport(config, listener, **options):
    """A TransactionalTransport; the names of TransactionLimits are options too."""
    limits, others = grouped(TransactionLimits, options)
    return TransactionalTransport(config, listener, limits=limits, **others)


def grouped(settings, options):
    """The settings object of those options that it has, and the other options."""
    names = {field.name for field in fields(settings)}
    others = {name: value for name, value in options.items() if name not in names}
    return settings(**{name: value for name, value in options.items() if name in names}), others
