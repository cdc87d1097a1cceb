"""Tests of reasons of failed calls, over a connection and from bytes. Requires only pyarrow."""

import unittest

from pyarrow import flight

from godwit._errors import GodwitError
from godwit._flight_client import Connection
from godwit._reasons import ERROR_INFO, HEADER, reason_in


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def details(reason, domain=b"godwit", message=b"m"):
    """Returns the bytes that ErrorReason::status of godwit-flight writes."""
    info = field(1, reason) + field(2, domain)
    return b"\x08\x05" + field(2, message) + field(3, field(1, ERROR_INFO) + field(2, info))


class ReasonMiddleware(flight.ServerMiddleware):
    """Sends the details of a status with every code."""

    def __init__(self, reason):
        self.reason = reason

    def sending_headers(self):
        return {HEADER: details(self.reason)} if self.reason else {}


class ReasonMiddlewareFactory(flight.ServerMiddlewareFactory):
    reason = b""

    def start_call(self, info, headers):
        return ReasonMiddleware(self.reason)


class RejectingServer(flight.FlightServerBase):
    def do_action(self, context, action):
        raise {"key": KeyError, "server": flight.FlightServerError, "denied": flight.FlightUnauthorizedError}[action.type](
            action.body.to_pybytes().decode()
        )


class Reasons(unittest.TestCase):
    def test_the_reason_is_that_of_the_details_whatever_the_message_is(self):
        for message in (b"", b"reworded", b"DATASET_NOT_FOUND"):
            self.assertEqual(reason_in(details(b"DATASET_CHANGED", message=message)), "DATASET_CHANGED")

    def test_details_of_other_programs_have_none(self):
        for other in (b"", b"abc", b"\xff" * 30, details(b"X", b"example.org"), details(b"X")[:-3]):
            self.assertIsNone(reason_in(other), other)

    def test_errors_of_connections_have_the_reason_of_the_server(self):
        sent = ReasonMiddlewareFactory()
        with RejectingServer("grpc://127.0.0.1:0", middleware={"reasons": sent}) as server:
            connection = Connection(f"grpc://127.0.0.1:{server.port}", None, None)
            for reason in ("UNKNOWN_ACTION", None, "DATASET_CHANGED"):
                sent.reason = (reason or "").encode()
                for kind, message in (("key", "one text"), ("server", "another"), ("denied", "a third")):
                    with self.assertRaises(GodwitError) as raised:
                        connection.do_action(kind, message.encode())
                    self.assertEqual(raised.exception.reason, reason)
                    self.assertIn(message, str(raised.exception))
            connection.close()


if __name__ == "__main__":
    unittest.main()
