#!/bin/sh
# Installs the sandbox distribution in the place of RKE2.
set -e

VERSION=@VERSION@
BINARY=@BINARY@
ROOT=${SANDBOX_INSTALL_ROOT:-}
DATA_DIR=${RKE2_DATA_DIR:-/var/lib/rancher/rke2}
PREFIX=/usr/local
UNIT_DIR=$PREFIX/lib/systemd/system
STATE_DIR=$ROOT$DATA_DIR/system-agent-installer
STAMP_FILE=$STATE_DIR/rke2_restart_stamp
ENV_FILE=$STATE_DIR/rke2-sa.env
TYPE=${INSTALL_RKE2_TYPE:-${INSTALL_RKE2_EXEC:-server}}

mkdir -p "$ROOT$PREFIX/bin" "$ROOT$UNIT_DIR" "$STATE_DIR" "$ROOT$DATA_DIR/bin" "$ROOT/etc/rancher/rke2"

link() {
    if [ "$(readlink "$ROOT$2" 2>/dev/null)" != "$1" ]; then
        ln -sfn "$1" "$ROOT$2.new"
        mv -f "$ROOT$2.new" "$ROOT$2"
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

link "$BINARY" "$PREFIX/bin/rke2"
# Rancher looks for kubectl here.
KUBECTL=$(command -v kubectl || true)
[ -n "$KUBECTL" ] && link "$KUBECTL" "$DATA_DIR/bin/kubectl"
printf '%s\n' "$VERSION" | replace "$ROOT/etc/rancher/rke2/sandbox-version" 644 || true

for type in server agent; do
    if [ "$type" = server ]; then KIND=notify; else KIND=exec; fi
    replace "$ROOT$UNIT_DIR/rke2-$type.service" 644 << UNIT || true
[Unit]
Description=Sandbox distribution in place of RKE2 ($type)
Wants=network-online.target
After=network-online.target
Conflicts=rke2-$([ "$type" = server ] && echo agent || echo server).service

[Install]
WantedBy=multi-user.target

[Service]
Type=$KIND
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-$UNIT_DIR/%N.env
EnvironmentFile=-$DATA_DIR/system-agent-installer/rke2-sa.env
KillMode=process
Delegate=yes
LimitNOFILE=1048576
TimeoutStartSec=0
TimeoutStopSec=60
Restart=always
RestartSec=5s
ExecStart=$PREFIX/bin/rke2 $type
UNIT
done

replace "$ROOT$PREFIX/bin/rke2-killall.sh" 755 << 'KILLALL' || true
#!/bin/sh
# Stops the sandbox distribution with everything it runs. Processes of pods end with their node.
[ "$(id -u)" -eq 0 ] || exec sudo --preserve-env=RKE2_DATA_DIR "$0" "$@"
set -x
systemctl stop rke2-server.service || true
systemctl stop rke2-agent.service || true
exit 0
KILLALL

replace "$ROOT$PREFIX/bin/rke2-uninstall.sh" 755 << REMOVE || true
#!/bin/sh
set -x
[ "\$(id -u)" -eq 0 ] || exec sudo --preserve-env=RKE2_DATA_DIR "\$0" "\$@"
RKE2_DATA_DIR=\${RKE2_DATA_DIR:-$DATA_DIR}
$PREFIX/bin/rke2-killall.sh
systemctl disable rke2-server || true
systemctl disable rke2-agent || true
rm -f $UNIT_DIR/rke2-server.service $UNIT_DIR/rke2-agent.service $UNIT_DIR/rke2-server.env $UNIT_DIR/rke2-agent.env
systemctl daemon-reload
rm -rf /etc/rancher/rke2 "\$RKE2_DATA_DIR"
rm -f $PREFIX/bin/rke2 $PREFIX/bin/rke2-killall.sh $PREFIX/bin/rke2-uninstall.sh
REMOVE

PRIOR=
[ -f "$STAMP_FILE" ] && PRIOR=$(cat "$STAMP_FILE")
RESTART=false
if [ -n "$RESTART_STAMP" ] && [ "$PRIOR" != "$RESTART_STAMP" ]; then RESTART=true; fi

if {
    env | { grep '^RKE2_' || true; } | sort
    env | { grep -Ei '^(NO|HTTP|HTTPS)_PROXY=' || true; } | sort
    printf 'REMUDA_NODE_VERSION=%s\n' "$VERSION"
} | replace "$ENV_FILE" 600; then RESTART=true; fi

if [ -n "$RESTART_STAMP" ]; then
    printf '%s\n' "$RESTART_STAMP" > "$STAMP_FILE.new"
    mv -f "$STAMP_FILE.new" "$STAMP_FILE"
fi

systemctl daemon-reload
[ "$INSTALL_RKE2_SKIP_ENABLE" = true ] && exit 0

if [ "$TYPE" = server ] && systemctl is-active --quiet rke2-agent; then
    systemctl stop rke2-agent
    systemctl disable rke2-agent
    systemctl reset-failed rke2-agent
fi
systemctl enable "rke2-$TYPE"
[ "$INSTALL_RKE2_SKIP_START" = true ] && exit 0

if [ "$RESTART" = true ]; then
    systemctl --no-block restart "rke2-$TYPE"
fi
