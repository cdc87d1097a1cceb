"""Federated averaging over nodes that have rows of their own. Needs pyarrow alone."""

import unittest

import numpy as np

import godwit
from godwit import federated

DRAW = np.random.default_rng(20261123)
TRUTH = DRAW.normal(size=8)


def rows(count):
    features = DRAW.normal(size=(count, 8))
    return features, features @ TRUTH


def trainer(features, wanted, steps=5):
    """Steps of least squares on the rows of one node."""

    def train(parameters):
        (weights,) = parameters
        weights = weights.copy()
        for _ in range(steps):
            weights -= 0.1 * features.T @ (features @ weights - wanted) / len(features)
        return [weights], len(features)

    return train


class Averaging(unittest.TestCase):
    def test_a_round_is_the_mean_of_the_nodes_by_their_rows(self):
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

    def test_nodes_learn_together_what_all_rows_say(self):
        sizes = [200, 50, 400]
        nodes = [federated.serve(trainer(*rows(size)), "127.0.0.1:0", token="secret") for size in sizes]
        try:
            found = federated.average([node.url for node in nodes], [np.zeros(8)], 60, token="secret")
        finally:
            for node in nodes:
                node.stop()
        np.testing.assert_allclose(found[0], TRUTH, atol=1e-6)

    def test_what_is_wrong_is_said_with_the_node(self):
        def fails(parameters):
            raise ValueError("no rows here")

        other_shape = lambda parameters: ([parameters[0][1:]], 1)  # noqa: E731
        start = [np.zeros(3)]
        for train, error, words in [
            (fails, godwit.GodwitError, "no rows here"),
            (other_shape, godwit.InputError, "other shapes"),
            (lambda parameters: (parameters, 0), godwit.InputError, "no node has rows"),
        ]:
            with federated.serve(train, "127.0.0.1:0") as node, self.subTest(words):
                with self.assertRaises(error) as raised:
                    federated.average([node.url], start, 1)
                self.assertIn(words, str(raised.exception))
                self.assertNotIn("Traceback", str(raised.exception))
        for error, words, wrong in [
            (godwit.UsageError, "no node", lambda: federated.average([], start, 1)),
            (godwit.UsageError, "one type", lambda: federated.average(["grpc+tcp://127.0.0.1:1"], [np.zeros(1), np.zeros(1, "f4")], 1)),
            (godwit.RemoteError, "127.0.0.1:1", lambda: federated.average(["grpc+tcp://127.0.0.1:1"], start, 1)),
            (godwit.UsageError, "reached by other machines", lambda: federated.serve(fails, "0.0.0.0:0")),
        ]:
            with self.subTest(words), self.assertRaises(error) as raised:
                wrong()
            self.assertIn(words, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
