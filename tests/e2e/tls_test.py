"""TLS between nodes and clients, with certificates that the program openssl makes."""
import subprocess
import unittest

import harness

KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


class Tls(harness.Case):
    """A cluster that speaks TLS, and those that do not, or have nothing to show."""

    def setUp(self):
        super().setUp()
        for authority in "ca", "other-ca":
            self.openssl("req", "-x509", *KEY, "-keyout", f"{authority}.key", "-out",
                         f"{authority}.pem", "-subj", f"/CN={authority}", "-days", "3")
        for name, authority in ("node", "ca"), ("stranger", "other-ca"):
            self.openssl("req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                         f"/CN={name}")
            self.openssl("x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey",
                         f"{authority}.key", "-CAcreateserial", "-out", f"{name}.pem", "-days", "3")

    def openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True,
                       timeout=harness.COMMAND_MAX)

    def flags(self, name="node", authority="ca"):
        return ["--tls", "on", "--tls-cert-file", self.folder / f"{name}.pem", "--tls-key-file",
                self.folder / f"{name}.key", "--tls-ca-file", self.folder / f"{authority}.pem"]

    def test_cluster_over_tls(self):
        superpeer, peers = self.cluster(2, *self.flags())
        nodes = self.shoal_json(superpeer, "node", "list", *self.flags())
        self.assertEqual(len(nodes["nodes"]), 3)
        big = bytes(range(256)) * 20000
        created = self.shoal_json(peers[0], "chunk", "create", len(big), *self.flags())
        cid = created["cids"][0]
        self.shoal(superpeer, "chunk", "put", cid, "-", *self.flags(), stdin=big)
        done = self.shoal(superpeer, "chunk", "get", cid, "--raw", *self.flags())
        self.assertEqual(done.stdout, big)
        for node in peers + [superpeer]:
            node.stop()

    def test_plain_client_is_told(self):
        node = self.superpeer("superpeer", *self.flags())
        self.refused("shoal", "status", "--connect", node.address, says="TLS refused",
                     status=harness.NO_CLUSTER)
        self.assertIn("speaks without TLS", node.log())
        self.shoal(node, "status", *self.flags())

    def test_plain_node_is_told(self):
        node = self.superpeer()
        self.refused("shoal", "status", "--connect", node.address, *self.flags(),
                     says="TLS refused", status=harness.NO_CLUSTER)
        self.shoal(node, "status")

    def test_wrong_authority(self):
        node = self.superpeer("superpeer", *self.flags())
        self.refused("shoal", "status", "--connect", node.address,
                     *self.flags("stranger", "ca"), says="TLS refused",
                     status=harness.NO_CLUSTER)
        self.refused("shoal", "status", "--connect", node.address,
                     *self.flags("node", "other-ca"), says="TLS refused",
                     status=harness.NO_CLUSTER)
        self.shoal(node, "status", *self.flags())

    def test_files_are_named(self):
        self.refused("shoald", "--listen", "127.0.0.1:0", "--tls", "on", says="tls_cert_file",
                     status=harness.USAGE)
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0",
                     *self.flags("nobody"), says="nobody.pem: No such file")
        self.refused("shoald", "--listen", "127.0.0.1:0", "--tls", "maybe", says="off or on",
                     status=harness.USAGE)

    def test_up_notes_it_for_the_other_commands(self):
        state = self.folder / "state"
        self.addCleanup(self.run_program, "shoal", "down", "--dir", state)
        done = self.run_program("shoal", "up", "1", "--dir", state, *self.flags())
        self.assertEqual(done.returncode, 0, done.problem)
        done = self.run_program("shoal", "status", "--dir", state)
        self.assertEqual(done.returncode, 0, done.problem)
        done = self.run_program("shoal", "down", "--dir", state)
        self.assertEqual(done.returncode, 0, done.problem)


if __name__ == "__main__":
    unittest.main()
