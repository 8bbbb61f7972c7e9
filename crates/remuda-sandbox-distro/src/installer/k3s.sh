#!/bin/sh
# Installs the sandbox distribution in the place of K3s.
set -e

VERSION=@VERSION@
BINARY=@BINARY@
ROOT=${SANDBOX_INSTALL_ROOT:-}
DATA_DIR=${K3S_DATA_DIR:-/var/lib/rancher/k3s}
BIN_DIR=${INSTALL_K3S_BIN_DIR:-/usr/local/bin}
UNIT_DIR=/etc/systemd/system
STAMP_FILE=$ROOT$DATA_DIR/restart_stamp

# The first word says server or agent; flags alone mean server, or agent where a server is given.
EXEC=${INSTALL_K3S_EXEC:-}
case "$EXEC" in
'') if [ -n "$K3S_URL" ]; then COMMAND=agent; else COMMAND=server; fi ;;
-*) if [ -n "$K3S_URL" ]; then COMMAND="agent $EXEC"; else COMMAND="server $EXEC"; fi ;;
*) COMMAND=$EXEC ;;
esac
case "$COMMAND" in
server*) UNIT=k3s TYPE=notify ;;
agent*) UNIT=k3s-agent TYPE=exec ;;
*) UNIT=k3s-${COMMAND%% *} TYPE=exec ;;
esac
[ -n "$INSTALL_K3S_NAME" ] && UNIT=k3s-$INSTALL_K3S_NAME

mkdir -p "$ROOT$BIN_DIR" "$ROOT$UNIT_DIR" "$ROOT$DATA_DIR" "$ROOT/etc/rancher/k3s"

link() {
    if [ "$(readlink "$ROOT$BIN_DIR/$1" 2>/dev/null)" != "$BINARY" ]; then
        ln -sfn "$BINARY" "$ROOT$BIN_DIR/.$1.new"
        mv -f "$ROOT$BIN_DIR/.$1.new" "$ROOT$BIN_DIR/$1"
    fi
}

# Writes standard input to a file. Succeeds if that changed it.
replace() {
    umask 077
    cat > "$1.new"
    if cmp -s "$1.new" "$1" 2>/dev/null; then
        rm -f "$1.new"
        return 1
    fi
    chmod "$2" "$1.new"
    mv -f "$1.new" "$1"
}

link k3s
printf '%s\n' "$VERSION" | replace "$ROOT/etc/rancher/k3s/sandbox-version" 644 || true

CHANGED=false
env | { grep -E '^(K3S_|CONTAINERD_)' || true; } | { grep -Ev '^K3S_DATA_DIR=$' || true; } | sort > "$ROOT$UNIT_DIR/$UNIT.service.env.body"
env | { grep -Ei '^(NO|HTTP|HTTPS)_PROXY=' || true; } | sort >> "$ROOT$UNIT_DIR/$UNIT.service.env.body"
printf 'REMUDA_NODE_VERSION=%s\n' "$VERSION" >> "$ROOT$UNIT_DIR/$UNIT.service.env.body"
if replace "$ROOT$UNIT_DIR/$UNIT.service.env" 600 < "$ROOT$UNIT_DIR/$UNIT.service.env.body"; then CHANGED=true; fi
rm -f "$ROOT$UNIT_DIR/$UNIT.service.env.body"

if replace "$ROOT$UNIT_DIR/$UNIT.service" 644 << UNIT
[Unit]
Description=Sandbox distribution in place of K3s
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=$TYPE
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$UNIT_DIR/$UNIT.service.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TimeoutStartSec=0
TimeoutStopSec=60
Restart=always
RestartSec=5s
ExecStart=$BIN_DIR/k3s $COMMAND
UNIT
then CHANGED=true; fi

replace "$ROOT$BIN_DIR/k3s-killall.sh" 755 << 'KILLALL' || true
#!/bin/sh
# Stops the sandbox distribution with everything it runs. Processes of pods end with their node.
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=K3S_DATA_DIR "$0" "$@"
set -x
for service in /etc/systemd/system/k3s*.service; do
    [ -s "$service" ] && systemctl stop "$(basename "$service")"
done
exit 0
KILLALL

UNINSTALL=$BIN_DIR/k3s-uninstall.sh
[ "$UNIT" = k3s ] || UNINSTALL=$BIN_DIR/$UNIT-uninstall.sh
replace "$ROOT$UNINSTALL" 755 << REMOVE || true
#!/bin/sh
set -x
[ "\$(id -u)" -eq 0 ] || exec sudo --preserve-env=K3S_DATA_DIR "\$0" "\$@"
K3S_DATA_DIR=\${K3S_DATA_DIR:-$DATA_DIR}
$BIN_DIR/k3s-killall.sh
systemctl disable $UNIT
systemctl reset-failed $UNIT
rm -f $UNIT_DIR/$UNIT.service $UNIT_DIR/$UNIT.service.env
systemctl daemon-reload
trap 'rm -f $UNINSTALL' EXIT
for service in /etc/systemd/system/k3s*.service; do
    if [ -s "\$service" ]; then
        set +x; echo 'Additional k3s services installed, skipping uninstall of k3s'; set -x
        exit
    fi
done
rm -rf /etc/rancher/k3s "\$K3S_DATA_DIR"
rm -f $BIN_DIR/k3s $BIN_DIR/k3s-killall.sh
REMOVE

# What the real installer asks: was there a stamp, and is it another one now.
PRIOR=
[ -f "$STAMP_FILE" ] && PRIOR=$(cat "$STAMP_FILE")
FORCE=false
if [ -n "$RESTART_STAMP" ] && [ "$PRIOR" != "$RESTART_STAMP" ]; then FORCE=true; fi
[ "$INSTALL_K3S_FORCE_RESTART" = true ] && FORCE=true

if [ "$INSTALL_K3S_SKIP_ENABLE" != true ]; then
    systemctl daemon-reload
    systemctl enable "$UNIT"
    if [ "$INSTALL_K3S_SKIP_START" != true ]; then
        if [ "$FORCE" = true ] || [ "$CHANGED" = true ] || ! systemctl is-active --quiet "$UNIT"; then
            systemctl restart "$UNIT"
        else
            echo 'No change detected so skipping service start'
        fi
    fi
fi

if [ -n "$RESTART_STAMP" ]; then
    printf '%s\n' "$RESTART_STAMP" > "$STAMP_FILE.new"
    mv -f "$STAMP_FILE.new" "$STAMP_FILE"
fi
