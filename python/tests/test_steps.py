"""Tests of names of steps, and of the options of step functions."""

import unittest
from pathlib import Path

from godwit import pipeline


def keep(table):
    return table


class Steps(unittest.TestCase):
    def test_functions_are_named_as_the_program_names_them(self):
        self.assertEqual(pipeline.name_of("my_steps:keep"), "my_steps:keep")
        self.assertEqual(pipeline.name_of(pipeline.step), "godwit.pipeline:step")

    def test_functions_that_no_other_process_can_import_are_refused(self):
        for function in (keep, lambda table: table, pipeline.step()):
            with self.assertRaisesRegex(ValueError, "module"):
                pipeline.name_of(function)

    def test_what_is_said_of_a_function_stays_with_it(self):
        described = pipeline.step(columns=["flags"], frame="polars")(keep)
        self.assertIs(described, keep)
        self.assertEqual(keep.__godwit_step__, {"columns": ["flags"], "frame": "polars"})

    def test_files_of_a_partition_bear_its_number(self):
        partition = pipeline.Partition("S", 3, 9, "chr1:1-5", ("chr1", 0), ("chr1", 5), Path("out"))
        self.assertEqual(str(partition.path("qc.csv")), "out/part-00003.qc.csv")


unittest.main()
