"""A campaign of one short round (tests/campaign): its faults are fixed, and it ends well, leaving nothing behind."""
import os
import pathlib
import subprocess
import sys
import unittest

import harness

CAMPAIGN = pathlib.Path(__file__).resolve().parents[1] / "campaign" / "campaign.py"
ENDS_MAX = 500  # seconds; reached only when something is wrong


class Short(harness.Case):
    @staticmethod
    def end(campaign):
        """It stops what it has started."""
        if campaign.poll() is None:
            campaign.terminate()
        campaign.communicate()

    def test_a_short_round(self):
        """A peer is killed, another one stopped, and then all are killed."""
        campaign = subprocess.Popen([sys.executable, str(CAMPAIGN), "--short", "--seed", "1", "--failure-s", "3"], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "E2E_BIN": str(harness.BIN)})
        self.addCleanup(self.end, campaign)
        try:
            text = campaign.communicate(timeout=ENDS_MAX)[0].decode(errors="replace")
        except subprocess.TimeoutExpired:
            self.fail(f"the campaign has not ended within {ENDS_MAX} s")
        self.assertEqual(campaign.returncode, 0, text)
        self.assertIn("1 round is well", text)
        for fault in ("kill peer", "stop peer", "kill all"):
            self.assertRegex(text, rf"(?i){fault}")


if __name__ == "__main__":
    unittest.main()
