#!/bin/sh
# Takes the node agent off this machine. What its plans have installed stays: K3s and RKE2 bring their own
# scripts for that.

NAME=rancher-system-agent

die() {
    printf '[ERROR] %s\n' "$*" >&2
    exit 1
}

# A typing error must not remove half the machine.
own_directory() {
    case "$2" in
        */../* | */.. | ../* | ..) die "$1 must not contain '..': $2" ;;
        /?*/?*) ;;
        *) die "$1 must be an absolute path at least two levels deep: $2" ;;
    esac
}

has_systemd() {
    [ -d "$ROOT/run/systemd/system" ] && command -v systemctl >/dev/null 2>&1
}

supervisor() {
    [ -s "$ROOT$VAR_DIR/supervisor.pid" ] || return 1
    supervisor_pid=$(cut -d ' ' -f 1 "$ROOT$VAR_DIR/supervisor.pid" | tr -cd '0-9')
    [ -n "$supervisor_pid" ] || return 1
    tr '\0' ' ' <"/proc/$supervisor_pid/cmdline" 2>/dev/null | grep -q supervise
}

main() {
    ROOT=${REMUDA_INSTALL_ROOT:-}
    ROOT=${ROOT%/}
    CONFIG_DIR=${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}
    VAR_DIR=${CATTLE_AGENT_VAR_DIR:-/var/lib/rancher/agent}
    if [ -n "${CATTLE_AGENT_BIN_PREFIX:-}" ]; then
        PREFIX=$CATTLE_AGENT_BIN_PREFIX
    else
        # The agent is where this script is.
        PREFIX=/usr/local
        [ -e "$ROOT$PREFIX/bin/$NAME" ] || PREFIX=/opt/rancher-system-agent
    fi
    if [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
        die "removing the node agent needs root; run it with sudo"
    fi
    own_directory CATTLE_AGENT_CONFIG_DIR "$CONFIG_DIR"
    own_directory CATTLE_AGENT_VAR_DIR "$VAR_DIR"
    if has_systemd; then
        # Not running, not being enabled and never having failed are as good.
        systemctl stop "$NAME" 2>/dev/null
        systemctl disable "$NAME" 2>/dev/null
        systemctl reset-failed "$NAME" 2>/dev/null
    elif supervisor; then
        kill "$supervisor_pid" 2>/dev/null
        waited=0
        while supervisor && [ "$waited" -lt 100 ]; do
            waited=$((waited + 1))
            sleep 0.2
        done
        if supervisor; then kill -9 "$supervisor_pid" 2>/dev/null; fi
    fi
    rm -f "$ROOT/etc/systemd/system/$NAME.service" "$ROOT/etc/systemd/system/$NAME.env"
    if has_systemd; then systemctl daemon-reload; fi
    rm -rf "$ROOT$VAR_DIR" "$ROOT$CONFIG_DIR"
    rm -f "$ROOT$PREFIX/bin/$NAME" "$ROOT$PREFIX/bin/$NAME-uninstall.sh"
}

main "$@"
