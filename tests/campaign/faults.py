"""What a campaign does to a cluster: one fault at a time, each within what is promised (docs/replication.md, docs/recovery.md).

A zone has REPLICAS backups. What is replicated survives that its owner fails, and all but one of these; so up to REPLICAS peers may fail
before the cluster is well again. What is durable survives that all nodes fail at one moment. A minority of the superpeers may fail. What
a peer has that was cut off or stopped for too long is at others, so it counts as one that has failed.
"""
import os
import signal
import time

import history
from cluster import REPLICAS


def pause(cluster, most_s):
    time.sleep(cluster.luck.uniform(0, most_s))


def start_again(cluster, servers):
    """Starts them in any order, with pauses in between; at times all is made well without them first."""
    if all(server.role == "peer" for server in servers) and len(cluster.peers) - len(servers) > REPLICAS and cluster.luck.random() < 0.3:
        cluster.wait_well()
    for server in cluster.luck.sample(servers, len(servers)):
        pause(cluster, 2 * cluster.failure_s)
        server.start()
    for server in servers:
        server.node.wait_ready()


def kill_one(cluster, servers):
    victim = cluster.luck.choice(servers)
    cluster.say(f"kill {victim}")
    victim.kill()
    start_again(cluster, [victim])


def kill_peer(cluster):
    kill_one(cluster, cluster.peers)


def kill_two_peers(cluster):
    """At once, or the second while the first one's chunks are brought back."""
    victims = cluster.luck.sample(cluster.peers, REPLICAS)
    wait_s = cluster.luck.choice((0, cluster.luck.uniform(0, 2), cluster.luck.uniform(0, 2 * cluster.failure_s)))
    cluster.say(f"kill {victims[0]} and after {wait_s:.2f} s {victims[1]}")
    victims[0].kill()
    time.sleep(wait_s)
    victims[1].kill()
    start_again(cluster, victims)


def kill_superpeer(cluster):
    kill_one(cluster, cluster.superpeers)


def kill_superpeer_and_peer(cluster):
    victims = [cluster.luck.choice(cluster.peers), cluster.luck.choice(cluster.superpeers)]
    cluster.luck.shuffle(victims)
    cluster.say(f"kill {victims[0]} and {victims[1]}")
    victims[0].kill()
    pause(cluster, cluster.luck.choice((0, 1)))
    victims[1].kill()
    start_again(cluster, victims)


def kill_worker(cluster):
    """A client that ends in the midst of its call."""
    victim = cluster.luck.choice([process for process in cluster.workers if process.poll() is None])
    cluster.say("kill a worker")
    cluster.killed.add(victim)
    victim.kill()
    cluster.worker_start()


def stop_for(cluster, servers, seconds):
    cluster.say(f"stop {' and '.join(map(str, servers))} for {seconds:.2f} s")
    for server in servers:
        server.signal(signal.SIGSTOP)
    time.sleep(seconds)
    for server in servers:
        server.signal(signal.SIGCONT)


def stop_peer_shortly(cluster):
    """Its lease does not run out, or just about."""
    stop_for(cluster, [cluster.luck.choice(cluster.peers)], cluster.failure_s * cluster.luck.uniform(0.1, 1.1))


def stop_peer_long(cluster):
    """Others have what it had when it goes on, and it must not serve it."""
    stop_for(cluster, [cluster.luck.choice(cluster.peers)], cluster.failure_s * cluster.luck.uniform(1.5, 4))


def stop_two_peers(cluster):
    stop_for(cluster, cluster.luck.sample(cluster.peers, REPLICAS), cluster.failure_s * cluster.luck.uniform(0.5, 3))


def stop_superpeer(cluster):
    stop_for(cluster, [cluster.luck.choice(cluster.superpeers)], cluster.failure_s * cluster.luck.uniform(0.3, 3))


def outage(cluster, servers, pause_s):
    """These end at once, as near as processes come to a power failure of their machines, and are started again in any order. What was durable then
    must be back."""
    begin = time.monotonic_ns()
    for server in cluster.luck.sample(servers, len(servers)):
        server.signal(signal.SIGKILL)
    for server in servers:
        server.kill()
    time.sleep(1)  # what they have sent is read
    # Only now: a call of the next era must not be answered by a node that ends.
    cluster.table.era(len(cluster.outages) + 1)
    cluster.outages.append(history.Outage(begin, time.monotonic_ns()))
    for server in cluster.luck.sample(servers, len(servers)):
        pause(cluster, pause_s)
        server.start()
    for server in servers:
        server.node.wait_ready()


def kill_all(cluster):
    cluster.say("kill all")
    outage(cluster, cluster.superpeers + cluster.peers, 0)


def kill_all_peers(cluster):
    """The superpeers go on."""
    cluster.say("kill all peers")
    outage(cluster, cluster.peers, 1)


def restart_each(cluster):
    """One node after the other stops in order, and is started again."""
    for server in cluster.luck.sample(cluster.superpeers + cluster.peers, len(cluster.superpeers + cluster.peers)):
        cluster.say(f"restart {server}")
        server.node.stop()
        server.start().node.wait_ready()
        cluster.wait_well()


def restart_announced(cluster):
    """A peer stops in order, to be back soon: it is, or is not, or another one is killed meanwhile."""
    victim, other = cluster.luck.sample(cluster.peers, 2)
    what = cluster.luck.choice(("in time", "late", "while another one is killed"))
    cluster.say(f"restart {victim}, as it has said: {what}")
    cluster.must_ask("node", "stop", victim.node.nid, "--back-within", f"{1 if what == 'late' else 300}s")
    victim.node.wait_end()
    if what == "late":
        pause(cluster, 3)
    elif what != "in time":
        other.kill()
    victim.start().node.wait_ready()
    if not other.is_up():
        start_again(cluster, [other])


def cut(cluster):
    """One node is cut off, from all or some, one way or both, for a while."""
    luck, net = cluster.luck, cluster.net
    victim = luck.choice(cluster.peers + cluster.superpeers)
    others = [server for server in cluster.superpeers + cluster.peers if server is not victim]
    groups = [others, [server for server in others if server.role == "superpeer"], [server for server in others if server.role == "peer"],
              luck.sample(others, luck.randrange(1, len(others)))]
    some = luck.choice([group for group in groups if group])
    machines = [server.machine for server in some] + ([cluster.client_machine] if luck.random() < 0.3 else [])
    way = luck.randrange(3)
    seconds = cluster.failure_s * luck.uniform(0.3, 4)
    cluster.say(f"cut {victim} {('and', 'to', 'from')[way]} {', '.join(map(str, some))} (machines {machines}) for {seconds:.2f} s")
    if way == 0:
        net.cut([victim.machine], machines)
    elif way == 1:
        net.cut_one_way([victim.machine], machines)
    else:
        net.cut_one_way(machines, [victim.machine])
    time.sleep(seconds)
    net.heal()


def fill_disk(cluster):
    """The disk of a peer gets full, and has room again after a while."""
    ballast = cluster.small_disk / "ballast"
    seconds = cluster.luck.uniform(1, 10)
    cluster.say(f"fill the disk of {cluster.small} for {seconds:.2f} s")
    with open(ballast, "wb") as file:
        room = os.statvfs(cluster.small_disk)
        if room.f_bavail:
            os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize)
    time.sleep(seconds)
    if cluster.luck.random() < 0.3:
        cluster.say(f"kill {cluster.small}")
        cluster.small.kill()
        pause(cluster, 4)
        ballast.unlink()
        start_again(cluster, [cluster.small])
        return
    ballast.unlink()


# What may be drawn, and how often.
FAULTS = {kill_peer: 4, kill_two_peers: 4, kill_superpeer: 2, kill_superpeer_and_peer: 2, kill_worker: 1, stop_peer_shortly: 2, stop_peer_long: 3,
          stop_two_peers: 2, stop_superpeer: 2, kill_all: 3, kill_all_peers: 1, restart_each: 1, restart_announced: 3, cut: 5, fill_disk: 2}
SHORT = (kill_peer, stop_peer_long, kill_all)  # of a plain ./test


def possible(cluster):
    """Those that can be had here, with their weights."""
    left_out = set()
    if not cluster.net:
        left_out.add(cut)
    if not cluster.small:
        left_out.add(fill_disk)
    return {fault: weight for fault, weight in FAULTS.items() if fault not in left_out}
