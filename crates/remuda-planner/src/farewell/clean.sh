# Takes off this machine what plans have put there, and then the agent that runs this.
# A distribution that no plan has configured is somebody else's. Each brings scripts to remove it, named by the kind
# of node, where it was installed to; they take themselves along, so there is no second try.
status=0
for distribution in k3s rke2; do
    [ -e "/etc/rancher/$distribution/config.yaml.d/50-rancher.yaml" ] || continue
    for directory in /usr/local/bin /opt/bin /usr/bin /opt/rke2/bin; do
        for name in "$distribution-uninstall.sh" "$distribution-agent-uninstall.sh"; do
            [ -x "$directory/$name" ] || continue
            "$directory/$name" || status=$?
        done
    done
done
[ "$status" = 0 ] || exit "$status"
rm -rf /etc/rancher/node "$PROVISIONING_DIR/idempotence"
rmdir "$PROVISIONING_DIR" 2>/dev/null
# The agent has to report that this is done; it does not outlive its own removal.
later() {
    if command -v setsid >/dev/null 2>&1; then
        setsid sh -c 'sleep 10; exec "$@"' - "$@" </dev/null >/dev/null 2>&1 &
    else
        nohup sh -c 'sleep 10; exec "$@"' - "$@" </dev/null >/dev/null 2>&1 &
    fi
}
for prefix in "${CATTLE_AGENT_BIN_PREFIX:-/usr/local}" /opt/rancher-system-agent /usr; do
    if [ -x "$prefix/bin/rancher-system-agent-uninstall.sh" ]; then
        later "$prefix/bin/rancher-system-agent-uninstall.sh"
        exit 0
    fi
    if [ -x "$prefix/bin/remuda" ]; then
        later "$prefix/bin/remuda" agent uninstall
        exit 0
    fi
done
echo 'no agent is installed here that could be removed'
