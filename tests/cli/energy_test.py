"""What runs say of energy and cost, from a false folder of the kernel's counters."""
import json
import os
import threading
import time
import unittest

from program import ProgramTest, strict_json


class Counters:
    """A processor of 40 W and a memory of 5 W, whose counters wrap around four times a second."""

    RANGE, WATTS = 10_000_000, {"package-0": 40, "dram": 5}

    def __init__(self, folder):
        self.files, self.ending = {}, threading.Event()
        for i, (name, watts) in enumerate(self.WATTS.items()):
            zone = folder / ("intel-rapl:0" + ":0" * i)
            zone.mkdir(parents=True)
            (zone / "name").write_text(name + "\n", encoding="ascii")
            (zone / "max_energy_range_uj").write_text(f"{self.RANGE}\n", encoding="ascii")
            self.files[zone / "energy_uj"] = watts
        self.begin = time.monotonic()
        self.write()
        self.thread = threading.Thread(target=self.run)

    def write(self):
        microjoules = (time.monotonic() - self.begin) * 1e6
        for path, watts in self.files.items():
            new = path.with_suffix(".new")
            new.write_text(f"{int(microjoules * watts) % self.RANGE}\n", encoding="ascii")
            os.replace(new, path)

    def run(self):
        while not self.ending.wait(0.002):
            self.write()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()


# A pass takes most of a millisecond. Generations are so long against the times at which the writer of the counters
# waits for a processor; one in which they stood still would have no saving.
SHAPE = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4}


class Energy(ProgramTest):
    def measure(self, *more):
        options = self.tiny(SHAPE, **{"prefill": 256, "gen-len": 120, "method": "ar,lookup", "prompts": 2,
                                      "repetitions": 3, "ignore-eos": True,
                                      "powercap": str(self.folder / "powercap"), "price": "3.6"})
        return self.run_program("run", *options, *more)

    def test_the_parts_of_a_run_have_their_power(self):
        with Counters(self.folder / "powercap"):
            table = self.measure("--json", "a.json", "--details").out
            self.measure("--json", "b.json")
        for heading in ("Energy and cost of decoding", "Energy of the measurement, J", "EUR/1M tokens"):
            self.assertIn(heading, table)
        result = strict_json((self.folder / "a.json").read_text(encoding="utf-8"))
        energy = result["context"]["energy"]
        sensors = {sensor["domain"]: sensor for sensor in energy["sensors"]}
        self.assertEqual(sensors["processor"]["source"], f"RAPL ({self.folder / 'powercap'})")
        self.assertAlmostEqual(sensors["memory"]["idle_watts"], 5, delta=1)
        self.assertIsNone(sensors["gpu"]["source"])
        self.assertTrue(sensors["gpu"]["unread"])
        timed = [sample for case in result["cases"] for sample in case["timing"]["samples"] if not sample["warmup"]]
        self.assertAlmostEqual(energy["spent"]["decode"]["processor"],
                               sum(sample["energy"]["processor"] for sample in timed), places=9)
        # Decoding takes its power for its time; a late writer makes no more difference than this.
        seconds = sum(sample["decode_ms"] for sample in timed) / 1000
        for domain, watts in (("processor", 40), ("memory", 5)):
            self.assertAlmostEqual(energy["spent"]["decode"][domain] / seconds / watts, 1, delta=0.5, msg=domain)
        for case in result["cases"]:
            cost = case["cost"]["eur_per_million_tokens"]
            self.assertAlmostEqual(cost * case["timing"]["tokens_per_s"], 1000, places=3)
            parts = case["energy"]["per_token"]
            self.assertAlmostEqual(parts["processor"] + parts["memory"], case["energy"]["joules_per_token"]["mean"])
        self.assertIsNotNone(result["cases"][1]["energy"]["saving"])
        self.assertIn("joules_per_token", self.run_program("compare", "a.json", "b.json").out)
        self.run_program("compare", "a.json", "b.json", "--exact")
        exported = json.loads(self.run_program("export", "a.json", "--format", "bencher").out)
        self.assertTrue(all({"joules-per-token", "eur-per-million-tokens"} <= figures.keys()
                            for figures in exported.values()))

    def test_what_is_not_read_has_its_reason(self):
        done = self.measure("--json", "a.json", "--details")
        energy = strict_json((self.folder / "a.json").read_text(encoding="utf-8"))["context"]["energy"]
        reason = f"{self.folder / 'powercap'}: No such file or directory"
        self.assertEqual([sensor["unread"] for sensor in energy["sensors"]][:2], [reason, reason])
        self.assertIsNone(energy["spent"])
        self.assertIn("EUR/1M tokens", done.out)
        self.assertIn("not read: processor", done.out)
        self.assertNotIn("J/token", done.out)

    def test_a_counter_that_never_moves_is_not_read(self):
        Counters(self.folder / "powercap")
        self.measure("--json", "a.json")
        result = strict_json((self.folder / "a.json").read_text(encoding="utf-8"))
        for sensor in result["context"]["energy"]["sensors"][:2]:
            self.assertEqual(sensor["unread"], f"RAPL ({self.folder / 'powercap'}): it did not move in a second")
            self.assertIsNone(sensor["source"])
        self.assertTrue(all(case["energy"] is None for case in result["cases"]))

    def test_ranks_of_a_machine_read_its_counters_once(self):
        with Counters(self.folder / "powercap"):
            self.measure("--tp", "2", "--json", "a.json")
        result = strict_json((self.folder / "a.json").read_text(encoding="utf-8"))
        for case in result["cases"]:
            self.assertLess(case["energy"]["watts"], 1.8 * 45)

    def test_a_sweep_has_columns_of_energy(self):
        self.write("r.toml", "title = 'T'\ncolumns = ['joules', 'saving', 'cost']\n[tiny]\nprompts = 2\n"
                   "budget = [64, 128]\n")
        with Counters(self.folder / "powercap"):
            options = self.tiny(SHAPE, **{"budget": None, "prompts": None, "prefill": 256, "gen-len": 60,
                                          "method": "retrieval", "ignore-eos": True,
                                          "powercap": str(self.folder / "powercap"), "price": "3.6"})
            out = self.run_program("sweep", "r.toml:tiny", *options).out
        for heading in ("joules", "saving", "cost"):
            self.assertRegex(out, rf"(?m)^.*method.* {heading}\b")


if __name__ == "__main__":
    unittest.main()
