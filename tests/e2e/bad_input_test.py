"""What users and other programs may do wrong: each a clear message, no crash, nothing left behind."""
import gzip
import socket
import struct
import threading
import unittest

import harness

MAGIC = 0x4C4F4853
HELLO, WELCOME, REFUSAL = 1, 2, 4
HELLO_BYTES = 48
WELCOME_BYTES = 80
EVERSION = 12


def frame(kind, size, version):
    """A hello or welcome of another version: zeros where nobody may get to look."""
    start = struct.pack("<IHHHHHH", MAGIC, kind, size, version, version, 0, 0)
    return start + bytes(size - len(start))


def receive(connection, size):
    got = b""
    while len(got) < size:
        part = connection.recv(size - len(got))
        if not part:
            break
        got += part
    return got


class Options(harness.Case):
    """shoald refuses wrong options before it touches anything."""

    def refuses(self, *flags, says, env=None, status=harness.USAGE):
        data_dir = self.folder / "data"
        ready = self.folder / "ready"
        self.refused("shoald", *flags, "--data-dir", data_dir, "--ready-file", ready, says=says,
                     env=env, status=status)
        self.assertFalse(data_dir.exists(), "it made its folder in spite of the refusal")
        self.assertFalse(ready.exists(), "it said that it was ready")

    def test_peer_without_superpeers(self):
        self.refuses(says="--superpeers", status=2)

    def test_unknown_flag_names_the_nearest(self):
        self.refuses("--listne", "127.0.0.1:0", says="listen")

    def test_unknown_variable_names_the_nearest(self):
        self.refuses(env=harness.clean_environment(SHOAL_LISTNE="127.0.0.1:0"), says="(?i)listen")

    def test_unknown_key_names_the_nearest(self):
        config = self.write("config.json", '{\n  "rols": ["peer"]\n}\n')
        self.refuses("--config", config, says="roles")

    def test_malformed_json_says_line_and_column(self):
        config = self.write("config.json", '{\n  "listen": "127.0.0.1:0",\n  oops\n}\n')
        self.refuses("--config", config, says=r"config\.json:3:\d+")

    def test_missing_config(self):
        self.refuses("--config", self.folder / "nowhere.json", says=r"nowhere\.json")

    def test_value_out_of_range(self):
        self.refuses("--threads", "1000", says="threads")

    def test_value_that_is_no_number(self):
        self.refuses("--store-bytes-max", "lots", says="store.bytes.max")

    def test_unknown_role(self):
        self.refuses("--roles", "emperor", says="emperor")

    def test_address_without_port(self):
        self.refuses("--listen", "localhost", says="localhost")

    def test_open_to_all_without_a_secret(self):
        self.refuses("--listen", "0.0.0.0:0", says="secret")

    def test_missing_secret_file(self):
        self.refuses("--roles", "superpeer", "--secret-file", self.folder / "nowhere",
                     says="nowhere", status=harness.FAILED)

    def test_unknown_word(self):
        self.refuses("serve", says="serve")


class Start(harness.Case):
    """Things that go wrong when the node opens its resources."""

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.refused("shoald", "--roles", "superpeer", "--listen", address, says="in use")

    def test_full_disk_for_the_log(self):
        node = harness.Node(self, "superpeer", "--roles", "superpeer", "--log-file", "/dev/full")
        # A log that can't be written must not bring the node down, nor make it hang.
        node.wait_ready()
        node.stop()

    def test_log_in_a_folder_that_does_not_exist(self):
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", "--log-file",
                     self.folder / "nowhere" / "log", says="nowhere")

    def test_data_folder_that_is_a_file(self):
        path = self.write("file", "not a folder")
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", "--data-dir",
                     path, says="file")

    def test_data_folder_of_another_node(self):
        data = self.folder / "taken"
        superpeer = self.superpeer("superpeer", "--data-dir", data)
        peer = self.peer("peer", superpeer, "--data-dir", self.folder / "own")
        says = "(?s)another node uses data_dir.*a folder of its own"
        for folder in (data, self.folder / "own"):
            self.refused("shoald", "--roles", "peer", "--superpeers", superpeer.address,
                         "--listen", "127.0.0.1:0", "--data-dir", folder, says=says, status=1)
            self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0",
                         "--data-dir", folder, says=says, status=1)
        # A node that was killed leaves nothing that keeps the next one out.
        peer.kill()
        self.peer("again", superpeer, "--data-dir", self.folder / "own")

    def test_registry_that_is_damaged(self):
        folder = self.folder / "data"
        node = self.superpeer("superpeer", "--data-dir", folder)
        self.peer("peer", node)
        node.stop()
        files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
        self.assertTrue(files, "the superpeer stored no registry")
        for path in files:
            content = bytearray(path.read_bytes())
            # At the beginning: what is damaged at the end is taken for torn, and dropped.
            content[min(len(content) // 2, 64)] ^= 0x55
            path.write_bytes(content)
        self.refused("shoald", "--roles", "superpeer", "--listen", "127.0.0.1:0", "--data-dir",
                     folder, says="(?i)checksum|corrupt|damaged")


class Reaching(harness.Case):
    """Clients and nodes that can't, or mustn't, talk to each other."""

    def free_address(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    def test_nobody_listens(self):
        self.refused("shoal", "status", "--connect", self.free_address(),
                     says="cannot be reached|unreachable", status=harness.NO_CLUSTER)

    def test_address_that_is_none(self):
        self.refused("shoal", "status", "--connect", "nowhere", says="nowhere",
                     status=harness.USAGE)

    def test_wrong_cluster(self):
        node = self.superpeer()
        self.refused("shoal", "status", "--connect", node.address, "--cluster", "other",
                     says="another cluster", status=harness.NO_CLUSTER)
        self.shoal(node, "status")

    def test_wrong_secret(self):
        right = self.write("right", "0123456789abcdef0123456789abcdef")
        wrong = self.write("wrong", "fedcba9876543210fedcba9876543210")
        node = self.superpeer("superpeer", "--secret-file", right)
        self.refused("shoal", "status", "--connect", node.address, "--secret-file", wrong,
                     says="secret", status=harness.NO_CLUSTER)
        self.refused("shoal", "status", "--connect", node.address, says="secret",
                     status=harness.NO_CLUSTER)
        self.shoal(node, "status", "--secret-file", right)

    def test_peer_with_a_wrong_secret_does_not_serve(self):
        right = self.write("right", "0123456789abcdef0123456789abcdef")
        wrong = self.write("wrong", "fedcba9876543210fedcba9876543210")
        superpeer = self.superpeer("superpeer", "--secret-file", right)
        peer = harness.Node(self, "peer", "--roles", "peer", "--superpeers", superpeer.address,
                            "--secret-file", wrong)
        harness.eventually(self, "the peer says why", harness.READY_MAX,
                           lambda: "secret" in peer.log())
        self.assertFalse(peer.ready_file.exists())

    def test_client_of_another_version(self):
        node = self.superpeer()
        host, port = node.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(frame(HELLO, HELLO_BYTES, 99))
            answer = receive(connection, 10)
            self.assertEqual(struct.unpack("<IHHH", answer), (MAGIC, REFUSAL, 10, EVERSION))
            self.assertEqual(connection.recv(1), b"", "the connection was not closed")
        self.shoal(node, "status")

    def test_node_of_another_version(self):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            listener.settimeout(30)

            def serve():
                try:
                    while True:
                        with listener.accept()[0] as connection:
                            receive(connection, HELLO_BYTES)
                            connection.sendall(frame(WELCOME, WELCOME_BYTES, 99))
                            connection.recv(64)
                except OSError:
                    pass  # The listener was shut down: the test is over.

            server = threading.Thread(target=serve)
            server.start()
            try:
                self.refused("shoal", "status", "--connect",
                             f"127.0.0.1:{listener.getsockname()[1]}", says="version",
                             status=harness.NO_CLUSTER)
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                server.join(30)
            self.assertFalse(server.is_alive())

    def test_garbage_on_the_port(self):
        node = self.superpeer()
        host, port = node.address.rsplit(":", 1)
        for garbage in (b"GET / HTTP/1.0\r\n\r\n", bytes(4096), b"\xff" * 4096, b"S"):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(garbage)
                connection.shutdown(socket.SHUT_WR)
                try:
                    while connection.recv(4096):
                        pass
                except ConnectionResetError:
                    pass  # Closing with bytes unread resets: that is a refusal as well.
        self.shoal(node, "status")


class Chunks(harness.Case):
    def test_chunk_that_does_not_exist(self):
        superpeer, _ = self.cluster(1)
        for command in (["get"], ["remove"], ["put", "--text", "x"]):
            self.refused("shoal", "chunk", command[0], "0001000000ffffff", *command[1:],
                         "--connect", superpeer.address, says="does not exist")

    def test_chunk_id_that_is_none(self):
        superpeer, _ = self.cluster(1)
        self.refused("shoal", "chunk", "get", "elephant", "--connect", superpeer.address,
                     says="elephant", status=harness.USAGE)

    def test_chunk_over_the_size_limit(self):
        superpeer, _ = self.cluster(1, "--chunk-bytes-max", "4096")
        self.refused("shoal", "chunk", "create", "4097", "--connect", superpeer.address,
                     says="limit")
        self.shoal(superpeer, "chunk", "create", "4096")

    def test_out_of_chunk_memory(self):
        superpeer, _ = self.cluster(1, "--store-bytes-max", "4MiB")
        self.refused("shoal", "chunk", "create", "8MiB", "--connect", superpeer.address,
                     says="chunk memory")
        self.shoal(superpeer, "chunk", "create", "64")


class Graphs(harness.Case):
    def setUp(self):
        super().setUp()
        self.node, _ = self.cluster(2)

    def load_refused(self, path, says):
        self.refused("shoal", "graph", "load", path, "--connect", self.node.address, says=says)
        self.refused("shoal", "graph", "bfs", "1", "--connect", self.node.address,
                     says="(?i)no such|no graph|not loaded")

    def test_wrong_lines_are_named(self):
        path = self.write("edges", "1 2\n# fine\n2 three\n3 4\n\n5\n")
        done = self.refused("shoal", "graph", "load", path, "--connect", self.node.address,
                            says=r"\b3\b")
        self.assertRegex(done.problem + done.text, r"\b6\b")

    def test_wrong_lines_leave_nothing(self):
        self.load_refused(self.write("edges", "1 2\n2 three\n"), "2")

    def test_name_over_64_bits(self):
        self.load_refused(self.write("edges", "1 2\n18446744073709551616 1\n"), "2")

    def test_missing_file(self):
        self.load_refused(self.folder / "nowhere", "nowhere")

    def test_truncated_gz(self):
        whole = gzip.compress(b"".join(b"%d %d\n" % (i, i + 1) for i in range(20000)))
        self.load_refused(self.write("edges.gz", whole[:len(whole) // 2]), "too early|incomplete")

    def test_damaged_gz(self):
        whole = bytearray(gzip.compress(b"".join(b"%d %d\n" % (i, i + 1) for i in range(20000))))
        whole[len(whole) // 2] ^= 0xFF
        self.load_refused(self.write("edges.gz", bytes(whole)), "(?i)checksum|corrupt|malformed|"
                                                                 "wrong|damaged|early")

    def test_truncated_zst(self):
        whole = (harness.DATA / "wordnet" / "wordnet.e.tsv.zst").read_bytes()
        self.load_refused(self.write("edges.zst", whole[:len(whole) // 2]), "too early|incomplete")

    def test_vertex_that_does_not_exist(self):
        self.shoal(self.node, "graph", "load", self.write("edges", "1 2\n2 3\n"))
        self.refused("shoal", "graph", "vertex", "99", "--connect", self.node.address, says="99")
        self.refused("shoal", "graph", "bfs", "99", "--connect", self.node.address, says="99")


class Commands(harness.Case):
    def test_unknown_command_names_the_nearest(self):
        self.refused("shoal", "statsu", says="status", status=2)
        self.refused("shoal", "graph", "laod", says="load", status=2)

    def test_missing_word(self):
        self.refused("shoal", "graph", "bfs", says="(?i)root|usage", status=2)

    def test_unknown_flag(self):
        self.refused("shoal", "status", "--jsno", says="json", status=2)

    def test_cluster_that_cannot_start_leaves_nothing(self):
        state = self.write("state", "a file where the folder should be")
        self.refused("shoal", "up", "2", "--dir", state, says="state")
        self.assertEqual(state.read_text(), "a file where the folder should be")

    def test_down_without_a_cluster(self):
        self.refused("shoal", "down", "--dir", self.folder / "nowhere", says="nowhere",
                     status=harness.NO_CLUSTER)


if __name__ == "__main__":
    unittest.main()
