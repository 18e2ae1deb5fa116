"""Specification of the driver's errors in the log: each once."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.xid_log import XidLog
from tests.builders_state import HEALTHY_UUID, healthy_gpu, starved_gpu


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> XidLog:
    caplog.set_level(logging.WARNING)
    return XidLog(logging.getLogger("gpumon"))


class TestAnXid:
    def test_is_logged_once_however_often_it_happens(
        self, log: XidLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        for times in (1, 1, 2, 9):
            log.follow([healthy_gpu(xid_errors=((13, times),))])

        (message,) = caplog.messages
        assert message.startswith(f"GPU 1 ({HEALTHY_UUID}): XID 13: ")

    def test_is_logged_beside_another_and_on_another_gpu(
        self, log: XidLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        log.follow([starved_gpu(), healthy_gpu(xid_errors=((13, 1),))])
        log.follow([starved_gpu(xid_errors=((13, 1),)), healthy_gpu(xid_errors=((13, 1), (48, 1)))])

        said = [message.split(": ")[1] for message in caplog.messages]
        assert said == ["XID 13", "XID 13", "XID 48"]

    def test_is_not_logged_again_after_a_source_that_forgot_it(
        self, log: XidLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        for xid_errors in (((13, 1),), (), ((13, 1),)):
            log.follow([healthy_gpu(xid_errors=xid_errors)])

        assert len(caplog.messages) == 1
