"""Shared by the tests of peers with logs of their own: where such a peer begins, and chunks that are there after it was killed."""
import harness

# Small, so that a short test fills several zones and segments.
SMALL = ("--store-bytes-max", "64MiB", "--chunk-bytes-max", "1MiB", "--zone-bytes", "2MiB",
         "--log-segment-bytes", "512KiB")


class LogCase(harness.Case):
    """A superpeer with a folder, and peers with logs."""

    FLAGS = SMALL  # of each peer

    def setUp(self):
        super().setUp()
        self.starts = 0
        self.superpeer = harness.Node(self, "superpeer", "--roles", "superpeer", "--data-dir",
                                      self.folder / "superpeer", "--failure-ns", "1s").wait_ready()

    def begin_on(self, folder, *flags, prefix=()):
        """A peer on a folder, not waited for."""
        self.starts += 1
        return harness.Node(self, f"{folder}-{self.starts}", "--superpeers", self.superpeer.address,
                            "--data-dir", self.folder / folder, "--failure-ns", "1s", *self.FLAGS, *flags,
                            prefix=prefix)

    def start_on(self, folder, *flags):
        return self.begin_on(folder, "--replicas", "1", *flags).wait_ready()

    def refused_on(self, folder, says, *flags, prefix=()):
        """A peer on that folder must end, and say why."""
        peer = self.begin_on(folder, *flags, prefix=prefix)
        self.assertNotEqual(peer.wait_end(harness.READY_MAX), 0)
        self.assertRegex(peer.log(), says)

    def client(self):
        return harness.Client(self, [self.superpeer.address])

    def write_some(self, client, nid, expected, luck, levels, count):
        """Writes chunks at any of the levels; expected: what is there then, by ID, None: nothing."""
        for number in range(count):
            level = luck.choice(levels)
            client.do("level", level)
            text = f"{level}-{number}-" + "x" * luck.choice((1, 50, 3000))
            cid = client.do("create", len(text), nid)
            client.do("put", cid, text)
            expected[cid] = text
            if luck.randrange(4) == 0:
                client.do("remove", cid)
                expected[cid] = None
            elif luck.randrange(4) == 0:
                expected[cid] = text[::-1]
                client.do("put", cid, expected[cid])

    def holds(self, client, expected):
        """A number is what a counter has."""
        for cid, text in expected.items():
            if text is None:
                self.assertRegex(client.ask("get", cid), "^SHOAL_ENOCHUNK", cid)
            elif isinstance(text, int):
                self.assertEqual(int(client.do("add", cid, 0)), text)
            else:
                self.assertEqual(client.do("get", cid), text)
