"""Tests of federated averaging over servers with their own rows. Requires only pyarrow."""

import unittest

import numpy as np

import godwit
from godwit import federated

RNG = np.random.default_rng(20261123)
TRUTH = RNG.normal(size=8)


def rows(count):
    features = RNG.normal(size=(count, 8))
    return features, features @ TRUTH


def trainer(features, wanted, steps=5):
    """Returns a training function: steps of least squares on the rows of one server."""

    def train(parameters):
        (weights,) = parameters
        weights = weights.copy()
        for _ in range(steps):
            weights -= 0.1 * features.T @ (features @ weights - wanted) / len(features)
        return [weights], len(features)

    return train


class AveragingTests(unittest.TestCase):
    def test_a_round_is_the_mean_of_the_servers_weighted_by_rows(self):
        answers = {1.0: 10, 2.0: 30}
        with (
            federated.serve(lambda got: ([got[0] + 1.0, got[1] * 0 + 1], answers[1.0]), "127.0.0.1:0") as one,
            federated.serve(lambda got: ([got[0] + 2.0, got[1] * 0 + 5], answers[2.0]), "127.0.0.1:0") as two,
        ):
            seen = []
            start = [np.zeros((2, 3), np.float32), np.ones(4, np.float32)]
            found = federated.average([one.url, two.url], start, 3, after_round=lambda number, now: seen.append((number, now[0][0, 0])))
        self.assertEqual([array.dtype for array in found], [np.float32, np.float32])
        np.testing.assert_array_equal(found[0], np.full((2, 3), 3 * 1.75, np.float32))
        np.testing.assert_array_equal(found[1], np.full(4, 4, np.float32))
        self.assertEqual(seen, [(1, 1.75), (2, 3.5), (3, 5.25)])
        np.testing.assert_array_equal(start[0], np.zeros((2, 3)))

    def test_servers_learn_together_what_all_rows_say(self):
        sizes = [200, 50, 400]
        servers = [federated.serve(trainer(*rows(size)), "127.0.0.1:0", token="secret") for size in sizes]
        try:
            found = federated.average([server.url for server in servers], [np.zeros(8)], 60, token="secret")
        finally:
            for server in servers:
                server.stop()
        np.testing.assert_allclose(found[0], TRUTH, atol=1e-6)

    def test_errors_name_the_server(self):
        def fails(parameters):
            raise ValueError("no rows here")

        other_shape = lambda parameters: ([parameters[0][1:]], 1)  # noqa: E731
        start = [np.zeros(3)]
        for train, error, expected in [
            (fails, godwit.GodwitError, "no rows here"),
            (other_shape, godwit.InputError, "other shapes"),
            (lambda parameters: (parameters, 0), godwit.InputError, "no server has rows"),
        ]:
            with federated.serve(train, "127.0.0.1:0") as server, self.subTest(expected):
                with self.assertRaises(error) as raised:
                    federated.average([server.url], start, 1)
                self.assertIn(expected, str(raised.exception))
                self.assertNotIn("Traceback", str(raised.exception))
        for error, expected, wrong in [
            (godwit.UsageError, "no server", lambda: federated.average([], start, 1)),
            (godwit.UsageError, "one type", lambda: federated.average(["grpc+tcp://127.0.0.1:1"], [np.zeros(1), np.zeros(1, "f4")], 1)),
            (godwit.RemoteError, "127.0.0.1:1", lambda: federated.average(["grpc+tcp://127.0.0.1:1"], start, 1)),
            (godwit.UsageError, "reached by other machines", lambda: federated.serve(fails, "0.0.0.0:0")),
        ]:
            with self.subTest(expected), self.assertRaises(error) as raised:
                wrong()
            self.assertIn(expected, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
