"""Specification of a GPU's errors in the log: each once."""

from __future__ import annotations

import logging

import pytest

from gpumon.cli.daemon_log import XidLog
from tests.builders_state import HEALTHY_UUID, device, healthy_gpu, starved_gpu


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


class TestAGpuThatVanished:
    def test_is_logged_once_and_when_it_is_back(
        self, log: XidLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        for listed in (True, False, False, True, True):
            log.follow([starved_gpu(), healthy_gpu(present=listed, listed=listed)])

        gone, back = caplog.messages
        assert gone.startswith(f"GPU 1 ({HEALTHY_UUID}) vanished: the driver lists it no longer.")
        assert "What to do: if nobody took it out, look for Xid" in gone
        assert back == f"GPU 1 ({HEALTHY_UUID}) is listed again"

    def test_is_no_instance_that_was_destroyed(
        self, log: XidLog, caplog: pytest.LogCaptureFixture
    ) -> None:
        part = device(1, "MIG-a", parent_uuid="GPU-x", mig_index=0)
        for listed in (True, False):
            log.follow([healthy_gpu(device=part, present=listed, listed=listed)])

        assert caplog.messages == []
