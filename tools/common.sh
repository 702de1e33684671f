# Functions shared by ./run and ./test; sourced by both, with $root set to the tree's root.
# shellcheck shell=bash disable=SC2154,SC2034

# Process group of the command that run_child has started, while it runs.
child=

say() { printf '%s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Runs a command in a process group of its own, so that stop_child can end it with all it started,
# and so that a trap runs at once and not only when the command is done. Input is /dev/null.
run_child() {
    local rc=0
    set -m
    "$@" </dev/null &
    child=$!
    set +m
    wait "$child" || rc=$?
    child=
    return $rc
}

# Ends the command that run_child waits for, with all that it started: asks, and after five seconds
# insists.
stop_child() {
    [ -n "$child" ] || return 0
    local group=$child deadline=$((SECONDS + 5)) insist
    child=
    kill -TERM -- "-$group" 2>/dev/null || return 0
    (
        sleep 5
        kill -KILL -- "-$group" 2>/dev/null
    ) &
    insist=$!
    # Reaped first: a dead leader that nobody waited for would keep its group in existence.
    wait "$group" 2>/dev/null || true
    while kill -0 -- "-$group" 2>/dev/null && [ "$SECONDS" -le "$deadline" ]; do
        sleep 0.1
    done
    kill "$insist" 2>/dev/null || true
}

# Prints the packages among its arguments that are not installed.
missing_packages() {
    local package
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
            printf '%s ' "$package"
    done
}

# Runs a command as root, by sudo where we are not.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Debian asks this file whether a package's service may be started; ours forbids it while we install.
policy=/usr/sbin/policy-rc.d
policy_ours=0

# Removes it if it is ours. To be called by the caller's clean-up as well.
remove_policy() {
    [ $policy_ours -eq 1 ] || return 0
    as_root rm -f "$policy"
    policy_ours=0
}

# install_packages PURPOSE PACKAGE...: installs from Debian what is missing, and says so before. No
# service that a package brings is started or left enabled by this.
install_packages() {
    local purpose=$1 missing log
    shift
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    say "Installing with apt-get, for $purpose: $missing"
    command -v apt-get >/dev/null || die "needs Debian's apt-get, or these packages installed: $missing"
    [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null ||
        die "not root and no sudo; as root: apt-get install $missing"
    log=$(mktemp)
    if [ ! -e "$policy" ]; then
        policy_ours=1
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    # shellcheck disable=SC2086 # the packages are words
    if ! { as_root apt-get -q update &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
            --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "apt-get failed; its last lines are above"
    fi
    remove_policy
    case " $missing " in
    *" redis-server "*)
        # Only the program is wanted, not a server at each boot.
        if command -v systemctl >/dev/null; then
            as_root systemctl disable -q redis-server >/dev/null 2>&1 || true
        fi
        ;;
    esac
    rm -f "$log"
}

release_packages="cmake gcc ninja-build pkg-config libc6-dev libjansson-dev libxxhash-dev libisal-dev
    libssl-dev liburing-dev zlib1g-dev libzstd-dev libzookeeper-mt-dev"

# build_preset PRESET [cmake option ...]: configures and builds a preset, quietly: a line that counts
# up on a terminal, one plain line elsewhere. The whole output is in build/PRESET.log. Returns
# non-zero after printing the log's tail when the build fails.
build_preset() {
    local preset=$1 log=$root/build/$1.log rc=0 started=$SECONDS meter=
    shift
    mkdir -p "$root/build"
    if [ -t 1 ]; then
        watch_build "$preset" "$log" &
        meter=$!
    else
        say "Building $preset"
    fi
    : >"$log"
    run_child build_commands "$preset" "$@" >"$log" 2>&1 || rc=$?
    if [ -n "$meter" ]; then
        kill "$meter" 2>/dev/null || true
        wait "$meter" 2>/dev/null || true
        printf '\r\033[K'
    fi
    if [ $rc -ne 0 ]; then
        tail -n 40 "$log" >&2
        say "Building $preset failed; the whole output is in build/$preset.log"
        return $rc
    fi
    say "Built $preset in $((SECONDS - started)) s"
}

# The targets that build_preset builds; empty: all.
build_targets=()

build_commands() {
    local preset=$1
    shift
    # What another generator has configured can't be configured again by this one.
    if ! grep -qs '^CMAKE_GENERATOR:INTERNAL=Ninja$' "$root/build/$preset/CMakeCache.txt"; then
        rm -rf "${root:?}/build/$preset"
    fi
    export NINJA_STATUS="[%p] "
    cd "$root" && cmake --preset "$preset" "$@" &&
        cmake --build --preset "$preset" -j "$(nproc)" ${build_targets:+--target "${build_targets[@]}"}
}

# Shows how far a build is: the last percentage in its log.
watch_build() {
    while :; do
        printf '\rBuilding %s %s' "$1" "$(grep -o '^\[ *[0-9]*%\]' "$2" 2>/dev/null | tail -n 1)"
        sleep 0.3
    done
}

# Ends every shoald that was started with the given folder in its command line or environment: what
# `shoal down` would do, for the moment when that can't be relied upon.
kill_nodes_of() {
    local folder=$1 process
    [ -n "$folder" ] || return 0
    for process in /proc/[0-9]*; do
        [ "$(cat "$process/comm" 2>/dev/null)" = shoald ] || continue
        if grep -qaF -- "$folder" "$process/cmdline" "$process/environ" 2>/dev/null; then
            kill -KILL "${process#/proc/}" 2>/dev/null || true
        fi
    done
}
