"""Tests of the decisions of `cargo xtask bench path` that need no measurement: python3 -m unittest tests.test_path, in bench."""

import unittest
from itertools import combinations
from typing import Any

from godwit_bench import harness
from godwit_bench.network import bit_flip_proxy, cells, path_report
from scenarios import path as script


class Cells(unittest.TestCase):
    def test_the_square_has_every_two_values_of_two_factors_once(self) -> None:
        square = list(cells.latin_square_cells())
        self.assertEqual(len(square), 25)
        for one, other in combinations(cells.SWEEPS, 2):
            self.assertEqual(len({(cell[one], cell[other]) for cell in square}), 25, (one, other))

    def test_the_factorial_has_all_cells_once_and_those_of_the_square_among_them(self) -> None:
        full = set(map(cells.cell_key, cells.factorial_cells()))
        self.assertEqual(len(full), 625)
        self.assertTrue(set(map(cells.cell_key, cells.latin_square_cells())) <= full)

    def test_a_cell_of_several_groups_is_measured_once_and_targets_are_for_disks(self) -> None:
        found = [cells.cell_key(cell) for cell in cells.cells_of_groups(["bars", "sweeps", "streams"], cells.STORAGE_MEDIA)]
        self.assertEqual(len(found), len(set(found)))
        memory = cells.cells_of_groups(["bars", "streams", "long"], ["memory"])
        self.assertEqual(memory, [])

    def test_targets_are_those_that_were_set(self) -> None:
        def bar(**factors: Any) -> float | None:
            return cells.target_percent({**cells.BASE, **factors})

        self.assertEqual([bar(rtt=rtt, loss=loss) for rtt in (10, 40) for loss in (0.0, 0.0001, 0.001)], [93, 93, 85] * 2)
        self.assertEqual([bar(rtt=100, loss=loss) for loss in (0.0, 0.0001, 0.001)], [86, 86, 85])
        self.assertEqual([bar(rtt=rtt, megabytes=4096) for rtt in (40, 100)], [96, 95])
        self.assertEqual([bar(rate=750), bar(jitter=0.5), bar(streams=8), bar(medium="memory")], [None] * 4)

    def test_a_bound_is_what_round_trips_and_slow_start_leave(self) -> None:
        bounds = [cells.bound_percent({**cells.BASE, "rtt": rtt}) for rtt in (10, 40, 100)]
        self.assertEqual([round(bound, 1) for bound in bounds], [99.2, 95.6, 87.6])
        # The same at 100 ms, in steps of a tenth of a round trip: 320 packets in one round trip, and twice as many in the next.
        cell = {**cells.BASE, "rtt": 100}
        link = cells.payload_mbps(cell) * 1e6 / 8
        left, seconds, packets = cell["megabytes"] * 2**20, 0.3, 320.0
        while left > 0:
            left -= min(link, packets * 1448 / 0.1) * 0.01
            seconds, packets = seconds + 0.01, packets * 2**0.1
        self.assertAlmostEqual(cells.percent_of(cell, seconds), bounds[2], delta=0.5)
        self.assertGreater(cells.bound_percent({**cells.BASE, "rtt": 100, "megabytes": 4096}), 97)

    def test_cells_of_before_media_were_told_are_known(self) -> None:
        old = {key: value for key, value in cells.BASE.items() if key != "medium"}
        self.assertEqual(cells.cell_key(old), cells.cell_key(cells.BASE))


class Results(unittest.TestCase):
    def results(self, **of_cell: Any) -> dict[str, list[harness.Result]]:
        old = {
            **cells.BASE,
            "seconds": 5.0,
            "percent": 89.0,
            "bound_percent": 94.7,
            "iperf3_x16_percent": 95.0,
            "emulator_late_us_p99": 64,
            "load": 1.0,
        }
        return script.upgrade_results({part: [] for part in ["cells", *script.CASES]} | {"cells": [{**old, **of_cell}]})

    def test_what_another_program_was_measured_for_is_left_only_if_it_is_to_be_done_again(self) -> None:
        unit = script.Measurement("cells", cells.BASE, 1, dict)
        self.assertEqual(list(script.remaining_measurements([unit], self.results(), "new", again=False)), [])
        self.assertEqual(list(script.remaining_measurements([unit, unit], self.results(program="old"), "new", again=True)), [unit])
        self.assertEqual(list(script.remaining_measurements([unit], self.results(program="new"), "new", again=True)), [])
        other = script.Measurement("cells", {**cells.BASE, "medium": "memory"}, 1, dict)
        self.assertEqual(list(script.remaining_measurements([other], self.results(), "new", again=False)), [other])

    def test_what_is_measured_anew_takes_the_place_of_what_was_known(self) -> None:
        results = self.results(program="old")
        script.run_measurement(script.Measurement("cells", cells.BASE, 1, lambda: {"seconds": 4.7, "runs": [4.7]}), results, "new")
        self.assertEqual([(cell["seconds"], cell["program"]) for cell in results["cells"]], [(4.7, "new")])

    def test_a_target_is_held_against_the_required_percent_or_the_bound_below_it(self) -> None:
        cell = self.results(peers_percent={"one": 90.0, "slow": None})["cells"][0]
        link, competitor = path_report.cell_targets([cell])
        self.assertEqual((link["asked"], link["kept"]), ("at least 93", False))
        self.assertFalse(competitor["kept"])
        bounded, _ = path_report.cell_targets([{**cell, "bound_percent": 88.0}])
        self.assertEqual((bounded["asked"], bounded["kept"]), ("at least 88", True))

    def test_cells_without_targets_share_one_target_for_the_worst(self) -> None:
        cell = self.results(rate=750, peers_percent={"one": 40.0, "other": 80.0})["cells"][0]
        (one,) = path_report.cell_targets([cell, {**cell, "runs": [5.9], "rtt": 60}, {**cell, "peers_percent": {}}])
        self.assertEqual((one["what"].split()[0], one["kept"]), ("2", True))
        (worse,) = path_report.cell_targets([cell, {**cell, "runs": [9.0]}])
        self.assertFalse(worse["kept"])

    def test_a_fault_that_ends_otherwise_than_it_should_is_counted(self) -> None:
        point = {"end": "copy", "ended_before": False, "sent_again_mib": 3.0, "on_after_s": 0.5, "right": True}
        late = {**point, "end": "server", "on_after_s": None, "right": False}
        promises = list(path_report.fault_targets([{"fault": "killed", "points": [point, late, {**late, "ended_before": True}]}]))
        kept = {promise["what"]: (promise["median"], promise["kept"]) for promise in promises}
        self.assertEqual(kept["2 ends killed, sent again at most"], (3.0, True))
        self.assertEqual(kept["2 faults, ended otherwise than they should"], (1, False))
        self.assertFalse(kept["1 times the server killed, going on after its return at the latest"][1])


class FlippedBits(unittest.TestCase):
    def test_single_bits_are_flipped_where_it_was_said_however_the_bytes_come(self) -> None:
        for size in (1, 7, 64):
            flips = bit_flip_proxy.BitFlips([0, 63, 20, 21])
            sent = bytes(range(64))
            came = b""
            for begin in range(0, 64, size):
                piece = bytearray(sent[begin : begin + size])
                flips.flip_bits(piece)
                came += piece
            differ = [at for at in range(64) if sent[at] != came[at]]
            self.assertEqual((differ, flips.flipped, flips.bytes), ([0, 20, 21, 63], 4, 64))
            self.assertTrue(all(bin(sent[at] ^ came[at]).count("1") == 1 for at in differ))


if __name__ == "__main__":
    unittest.main()
