
# Installs the node agent on this machine and registers it with the server it came from.
#
#   curl -fL SERVER/system-agent-install.sh | sudo sh -s - --server SERVER --token TOKEN [options]
#
# Run it with --help for the options. Running it again upgrades the agent in place.
# Everything is inside functions, so that a download that breaks off runs nothing.

NAME=rancher-system-agent

usage() {
    cat <<'TEXT'
usage: system-agent-install.sh [options]

  -s, --server URL             the server to register with            (CATTLE_SERVER)
  -t, --token TOKEN            registration token of the cluster      (CATTLE_TOKEN)
  -c, --ca-checksum HEX        sha256 of the server's certificates    (CATTLE_CA_CHECKSUM)
  -e, --etcd                   the node is a member of etcd           (CATTLE_ROLE_ETCD)
  -p, --controlplane           the node runs the control plane        (CATTLE_ROLE_CONTROLPLANE)
  -w, --worker                 the node runs workloads                (CATTLE_ROLE_WORKER)
  -a, --all-roles              all three
      --no-roles               none: the server knows the roles       (CATTLE_ROLE_NONE)
  -n, --node-name NAME         name of the node                       (CATTLE_NODE_NAME)
      --address ADDRESS        its address, an interface or a keyword (CATTLE_ADDRESS)
  -i, --internal-address ADDRESS  the same on the private network     (CATTLE_INTERNAL_ADDRESS)
  -l, --label KEY=VALUE        a label of the node, repeatable        (CATTLE_LABELS)
      --taint KEY=VALUE:EFFECT a taint of the node, repeatable        (CATTLE_TAINTS)

Keywords for addresses: awslocal awspublic doprivate dopublic azprivate azpublic gceinternal gceexternal
packetlocal packetpublic ipify
TEXT
}

info() {
    printf '[INFO]  %s\n' "$*"
}

warn() {
    printf '[WARN]  %s\n' "$*" >&2
}

die() {
    printf '[ERROR] %s\n' "$*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

is_true() {
    case "${1:-}" in
        true | TRUE | True | t | yes | YES | Yes | y | 1) return 0 ;;
        *) return 1 ;;
    esac
}

# --- what is asked for -------------------------------------------------------------------------------

need_value() {
    [ "$2" -gt 1 ] || die "$1 needs a value"
}

append() {
    if [ -n "$1" ]; then printf '%s,%s' "$1" "$2"; else printf '%s' "$2"; fi
}

parse() {
    while [ $# -gt 0 ]; do
        case "$1" in
            -s | --server) need_value "$1" $#; CATTLE_SERVER=$2; shift 2 ;;
            -t | --token) need_value "$1" $#; CATTLE_TOKEN=$2; shift 2 ;;
            -c | --ca-checksum) need_value "$1" $#; CATTLE_CA_CHECKSUM=$2; shift 2 ;;
            -n | --node-name) need_value "$1" $#; CATTLE_NODE_NAME=$2; shift 2 ;;
            --address) need_value "$1" $#; CATTLE_ADDRESS=$2; shift 2 ;;
            -i | --internal-address) need_value "$1" $#; CATTLE_INTERNAL_ADDRESS=$2; shift 2 ;;
            -l | --label | --labels)
                need_value "$1" $#
                CATTLE_LABELS=$(append "${CATTLE_LABELS:-}" "$2")
                shift 2
                ;;
            --taint | --taints)
                need_value "$1" $#
                CATTLE_TAINTS=$(append "${CATTLE_TAINTS:-}" "$2")
                shift 2
                ;;
            -e | --etcd) CATTLE_ROLE_ETCD=true; shift ;;
            -p | --controlplane | --control-plane) CATTLE_ROLE_CONTROLPLANE=true; shift ;;
            -w | --worker) CATTLE_ROLE_WORKER=true; shift ;;
            -a | --all-roles)
                CATTLE_ROLE_ETCD=true
                CATTLE_ROLE_CONTROLPLANE=true
                CATTLE_ROLE_WORKER=true
                shift
                ;;
            --no-roles) CATTLE_ROLE_NONE=true; shift ;;
            -h | --help) usage; exit 0 ;;
            *) die "unknown option $1; --help shows what there is" ;;
        esac
    done
}

# A tab or a line break in a value would become another header of the request.
single_line() {
    case "$2" in
        *[[:cntrl:]]*) die "$1 must be one line without control characters" ;;
    esac
}

# A typing error must not make the whole machine the agent's own directory.
own_directory() {
    case "$2" in
        */../* | */.. | ../* | ..) die "$1 must not contain '..': $2" ;;
        /?*/?*) ;;
        *) die "$1 must be an absolute path at least two levels deep: $2" ;;
    esac
}

settle() {
    ROOT=${REMUDA_INSTALL_ROOT:-}
    ROOT=${ROOT%/}
    # Inside a transactional update only /usr and /etc of the new snapshot can be written.
    if [ -n "${TRANSACTIONAL_UPDATE:-}" ]; then
        : "${CATTLE_AGENT_BIN_PREFIX:=/usr}"
        : "${CATTLE_AGENT_VAR_DIR:=/etc/rancher/agent/var}"
    fi
    CONFIG_DIR=${CATTLE_AGENT_CONFIG_DIR:-/etc/rancher/agent}
    VAR_DIR=${CATTLE_AGENT_VAR_DIR:-/var/lib/rancher/agent}
    UNIT_DIR=/etc/systemd/system
    PREFIX=${CATTLE_AGENT_BIN_PREFIX:-}
    if [ -z "$PREFIX" ]; then
        PREFIX=/usr/local
        usable_prefix || PREFIX=/opt/rancher-system-agent
    fi
    BIN="$PREFIX/bin/$NAME"
    STRICT=false
    if is_true "${CATTLE_AGENT_STRICT_VERIFY:-${STRICT_VERIFY:-}}"; then STRICT=true; fi
    REMOTE=true
    if [ -n "${CATTLE_REMOTE_ENABLED:-}" ] && ! is_true "$CATTLE_REMOTE_ENABLED"; then REMOTE=false; fi
    LOCAL=false
    if is_true "${CATTLE_LOCAL_ENABLED:-}"; then LOCAL=true; fi
    PRESERVE=false
    if is_true "${CATTLE_PRESERVE_WORKDIR:-}"; then PRESERVE=true; fi
    LOG_LEVEL=$(printf '%s' "${CATTLE_AGENT_LOGLEVEL:-info}" | tr -cd '[:alnum:]')
    SERVER=${CATTLE_SERVER:-}
    SERVER=${SERVER%/}
    TOKEN=${CATTLE_TOKEN:-}
    CHECKSUM=$(printf '%s' "${CATTLE_CA_CHECKSUM:-}" | tr '[:upper:]' '[:lower:]')
    PAUSE=${CATTLE_AGENT_RETRY_INTERVAL:-5}
    TRIES=${CATTLE_AGENT_RETRIES:-4500}
    CA_FILE=
}

usable_prefix() {
    [ -d "$ROOT/usr/local" ] || return 0
    [ -w "$ROOT/usr/local" ] || return 1
    if has mountpoint && mountpoint -q "$ROOT/usr/local"; then return 1; fi
    return 0
}

check() {
    if [ -z "$ROOT" ] && [ "$(id -u)" != 0 ]; then
        die "installing the node agent needs root; run it with sudo"
    fi
    own_directory CATTLE_AGENT_CONFIG_DIR "$CONFIG_DIR"
    own_directory CATTLE_AGENT_VAR_DIR "$VAR_DIR"
    case "$(uname -m)" in
        x86_64 | amd64) ARCH=amd64 ;;
        aarch64 | arm64) ARCH=arm64 ;;
        arm*) ARCH=arm ;;
        s390x) ARCH=s390x ;;
        *) die "there is no node agent for the architecture $(uname -m)" ;;
    esac
    if [ "$REMOTE" = false ]; then
        [ "$LOCAL" = true ] || die "CATTLE_REMOTE_ENABLED and CATTLE_LOCAL_ENABLED are both false: nothing to do"
        return 0
    fi
    case "$SERVER" in
        https://?*) ;;
        '') die "no server is given: use --server or CATTLE_SERVER" ;;
        *) die "the server must be an https:// address, not $SERVER" ;;
    esac
    [ -n "$TOKEN" ] || [ -s "$ROOT$VAR_DIR/rancher2_connection_info.json" ] ||
        die "no token is given and this machine is not registered: use --token or CATTLE_TOKEN"
    if [ "$STRICT" = true ] && [ -z "$CHECKSUM" ]; then
        die "strict verification needs the checksum of the server's certificates: use --ca-checksum"
    fi
    if [ -n "$TOKEN" ] && ! is_true "${CATTLE_ROLE_NONE:-}" && ! is_true "${CATTLE_ROLE_ETCD:-}" &&
        ! is_true "${CATTLE_ROLE_CONTROLPLANE:-}" && ! is_true "${CATTLE_ROLE_WORKER:-}"; then
        die "the node needs a role: --etcd, --controlplane, --worker, --all-roles or --no-roles"
    fi
    single_line --server "$SERVER"
    single_line --token "$TOKEN"
    single_line --node-name "${CATTLE_NODE_NAME:-}"
    single_line --address "${CATTLE_ADDRESS:-}"
    single_line --internal-address "${CATTLE_INTERNAL_ADDRESS:-}"
    single_line --label "${CATTLE_LABELS:-}"
    single_line --taint "${CATTLE_TAINTS:-}"
    single_line CATTLE_ID "${CATTLE_ID:-}"
    if has curl; then
        FETCHER=curl
    elif has wget && wget --version 2>/dev/null | grep -q 'GNU Wget'; then
        FETCHER=wget
    else
        die "neither curl nor GNU wget is installed"
    fi
}

# Notes a file that this run makes and that was not there before.
claim() {
    [ -e "$1" ] || MADE="$MADE$1
"
}

# Takes back what a first installation made that did not come to its end.
leave() {
    rm -rf "$WORK"
    rm -f "$PENDING"
    [ "$DONE" = true ] && return 0
    printf '%s' "$MADE" | while IFS= read -r made; do rm -f "$made"; done
    [ -n "$MADE" ] || return 0
    for directory in "$VAR_DIR/interlock" "$VAR_DIR" "$CONFIG_DIR"; do
        empty=true
        for entry in "$ROOT$directory"/* "$ROOT$directory"/.[!.]*; do
            if [ -e "$entry" ]; then empty=false; fi
        done
        if [ "$empty" = true ]; then rm -rf "$ROOT$directory" 2>/dev/null; fi
    done
    return 0
}

prepare() {
    umask 077
    MADE=
    DONE=false
    # What was complete before stays as it is.
    if [ -e "$ROOT$CONFIG_DIR/config.yaml" ]; then DONE=true; fi
    for file in "$BIN" "$PREFIX/bin/$NAME-uninstall.sh" "$CONFIG_DIR/config.yaml" "$CONFIG_DIR/cattle-id"; do
        claim "$ROOT$file"
    done
    mkdir -p "$ROOT$VAR_DIR/interlock" "$ROOT$CONFIG_DIR" || die "cannot create $VAR_DIR and $CONFIG_DIR"
    chmod 700 "$ROOT$VAR_DIR" "$ROOT$CONFIG_DIR" || die "cannot protect $VAR_DIR and $CONFIG_DIR"
    WORK=$(mktemp -d "$ROOT$VAR_DIR/install.XXXXXX") || die "cannot create a directory below $VAR_DIR"
    PENDING="$ROOT$VAR_DIR/interlock/restart-pending"
    trap leave EXIT
    trap 'exit 1' HUP INT TERM
}

# --- talking to the server ---------------------------------------------------------------------------

# request URL FILE SECONDS TRUST [HEADERS]: prints the HTTP status, 000 when there was no answer, and keeps
# what the tool said in $WORK/reason. TRUST is `system`, `nobody` or `pinned`. HEADERS is a file with one
# header a line; the command line could be read by everybody on the machine.
request() {
    request_headers=${5:-}
    rm -f "$2"
    if [ "$FETCHER" = curl ]; then
        request_curl "$1" "$2" "$3" "$4" 2>"$WORK/reason" || true
    else
        request_wget "$1" "$2" "$3" "$4" 2>"$WORK/reason" || true
    fi
}

request_curl() {
    : >"$WORK/options"
    if [ -n "$request_headers" ]; then
        # In curl's configuration files backslashes and quotes are escaped by a backslash.
        sed -e 's/[\\"]/\\&/g' -e 's/^/header = "/' -e 's/$/"/' "$request_headers" >>"$WORK/options"
    fi
    case "$4" in
        nobody) echo insecure >>"$WORK/options" ;;
        pinned) printf 'cacert = "%s"\n' "$CA_FILE" >>"$WORK/options" ;;
    esac
    curl --config "$WORK/options" --silent --show-error --location --connect-timeout 30 --max-time "$3" \
        --output "$2" --write-out '%{http_code}' "$1"
}

request_wget() {
    : >"$WORK/options"
    if [ -n "$request_headers" ]; then sed -e 's/^/header = /' "$request_headers" >>"$WORK/options"; fi
    case "$4" in
        nobody) echo 'check_certificate = off' >>"$WORK/options" ;;
        pinned) printf 'ca_certificate = %s\n' "$CA_FILE" >>"$WORK/options" ;;
    esac
    # 8: the server answered with an error, which is an answer.
    WGETRC="$WORK/options" wget --quiet --server-response --content-on-error --tries=1 --connect-timeout=30 \
        --read-timeout="$3" --output-document="$2" "$1" 2>"$WORK/transcript" || [ $? -eq 8 ] || {
        grep -v '^ ' "$WORK/transcript" >&2
        printf '000'
        return 1
    }
    sed -n 's/^ *HTTP\/[0-9.]* \([0-9][0-9][0-9]\).*/\1/p' "$WORK/transcript" | tail -n 1
}

# What to tell about an answer that is not the wanted one.
said() {
    if [ "$1" = 000 ] || [ -z "$1" ]; then
        tail -n 1 "$WORK/reason" 2>/dev/null
    else
        printf 'HTTP %s: ' "$1"
        head -c 500 "$2" 2>/dev/null | tr '[:cntrl:]' ' '
    fi
}

sha256() {
    if has sha256sum; then
        sha256sum "$1" | cut -d ' ' -f 1
    elif has shasum; then
        shasum -a 256 "$1" | cut -d ' ' -f 1
    elif has openssl; then
        openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1
    else
        die "none of sha256sum, shasum and openssl is installed"
    fi
}

# Repeats a function until it succeeds. 2 from it means that trying again is pointless.
until_done() {
    attempt=1
    while :; do
        if "$1"; then return 0; else result=$?; fi
        if [ "$result" = 2 ]; then die "$REASON"; fi
        if [ "$attempt" -ge "$TRIES" ]; then die "giving up after $attempt attempts: $REASON"; fi
        warn "$REASON; trying again in $PAUSE s ($attempt of $TRIES)"
        attempt=$((attempt + 1))
        sleep "$PAUSE"
    done
}

healthy() {
    status=$(request "$SERVER/healthz" "$WORK/healthz" 60 "$1")
    [ "$status" = 200 ]
}

establish_trust() {
    TRUST=system
    if [ "$STRICT" = false ] && healthy system; then
        return 0
    fi
    if [ -z "$CHECKSUM" ]; then
        REASON="cannot reach $SERVER: $(said "$status" "$WORK/healthz")"
        return 1
    fi
    status=$(request "$SERVER/cacerts" "$WORK/cacerts" 60 nobody)
    if [ "$status" != 200 ]; then
        REASON="cannot read $SERVER/cacerts: $(said "$status" "$WORK/cacerts")"
        return 1
    fi
    if ! grep -q -e '-----BEGIN CERTIFICATE-----' "$WORK/cacerts" ||
        { has openssl && ! openssl x509 -noout -in "$WORK/cacerts" 2>/dev/null; }; then
        REASON="$SERVER/cacerts is not a certificate"
        return 2
    fi
    found=$(sha256 "$WORK/cacerts")
    if [ "$found" != "$CHECKSUM" ]; then
        REASON="the certificates of $SERVER have the checksum $found, expected is $CHECKSUM"
        return 2
    fi
    CA_FILE="$WORK/cacerts"
    TRUST=pinned
    if ! healthy pinned; then
        REASON="cannot reach $SERVER with its own certificates: $(said "$status" "$WORK/healthz")"
        return 1
    fi
}

# --- the agent's files -------------------------------------------------------------------------------

has_systemd() {
    [ -d "$ROOT/run/systemd/system" ] && has systemctl
}

# The supervisor on machines without systemd, if it is still the process that noted itself.
supervisor() {
    [ -s "$ROOT$VAR_DIR/supervisor.pid" ] || return 1
    supervisor_pid=$(cut -d ' ' -f 1 "$ROOT$VAR_DIR/supervisor.pid" | tr -cd '0-9')
    [ -n "$supervisor_pid" ] || return 1
    tr '\0' ' ' <"/proc/$supervisor_pid/cmdline" 2>/dev/null | grep -q supervise
}

is_running() {
    if has_systemd; then systemctl is-active --quiet "$NAME"; else supervisor; fi
}

# Asks a running agent to begin no new plan, and waits until the present one is applied.
hold_plans() {
    : >"$PENDING"
    waited=0
    while [ -e "$ROOT$VAR_DIR/interlock/applyinator-active" ] && is_running; do
        [ "$waited" -lt 59 ] || die "a plan is still being applied; try again when it is done"
        [ "$waited" -gt 0 ] || info "waiting until the present plan is applied"
        waited=$((waited + 1))
        sleep 5
    done
}

stop_service() {
    if has_systemd; then
        if is_running; then systemctl stop "$NAME" || die "cannot stop $NAME"; fi
    elif supervisor; then
        kill "$supervisor_pid" 2>/dev/null
        waited=0
        while supervisor && [ "$waited" -lt 100 ]; do
            waited=$((waited + 1))
            sleep 0.2
        done
        if supervisor; then kill -9 "$supervisor_pid" 2>/dev/null; fi
    fi
    return 0
}

verify() {
    if [ -n "$2" ]; then
        found=$(sha256 "$1")
        [ "$found" = "$(printf '%s' "$2" | tr '[:upper:]' '[:lower:]')" ] ||
            die "the checksum of $3 is $found, expected is $2"
    fi
}

download_binary() {
    url=${CATTLE_AGENT_BINARY_URL:-}
    trust=system
    if [ -z "$url" ]; then
        base=${CATTLE_AGENT_BINARY_BASE_URL:-$SERVER/assets}
        url="${base%/}/$NAME-$ARCH"
    fi
    # The pinned certificates are the server's; elsewhere they prove nothing.
    case "$url" in
        "$SERVER"/*) trust=$TRUST ;;
    esac
    status=$(request "$url" "$ROOT$BIN.new" 600 "$trust")
    if [ "$status" = 200 ] && [ -s "$ROOT$BIN.new" ]; then return 0; fi
    REASON="cannot download $url: $(said "$status" "$ROOT$BIN.new")"
    rm -f "$ROOT$BIN.new"
    if [ "$status" = 404 ]; then return 2; fi
    return 1
}

install_binary() {
    (umask 022 && mkdir -p "$ROOT$PREFIX/bin") || die "cannot create $PREFIX/bin"
    if is_true "${CATTLE_AGENT_BINARY_LOCAL:-}"; then
        from=${CATTLE_AGENT_BINARY_LOCAL_LOCATION:-}
        [ -f "$from" ] || die "CATTLE_AGENT_BINARY_LOCAL_LOCATION is not a file: '$from'"
        info "installing the agent from $from"
        rm -f "$ROOT$BIN.new"
        # What nobody can write here is there to stay: it is not copied.
        if [ -w "$from" ] || [ ! -x "$from" ] || [ -n "$ROOT" ]; then
            { cp "$from" "$ROOT$BIN.new" && chmod 755 "$ROOT$BIN.new"; } || die "cannot copy $from to $BIN"
        else
            ln -s "$from" "$BIN.new" || die "cannot link $BIN to $from"
        fi
    else
        info "downloading the agent"
        until_done download_binary
        chmod 755 "$ROOT$BIN.new" || die "cannot install $BIN"
    fi
    verify "$ROOT$BIN.new" "${CATTLE_AGENT_BINARY_CHECKSUM:-}" "the agent"
    # Beside and renamed: the binary in place may be running.
    mv -f "$ROOT$BIN.new" "$ROOT$BIN" || die "cannot install $BIN"
    if has restorecon; then restorecon "$ROOT$BIN" 2>/dev/null || true; fi
}

install_uninstall() {
    target="$ROOT$PREFIX/bin/$NAME-uninstall.sh"
    if is_true "${CATTLE_AGENT_UNINSTALL_LOCAL:-}"; then
        from=${CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION:-}
        [ -f "$from" ] || die "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION is not a file: '$from'"
        cp "$from" "$target.new" || die "cannot copy $from"
    elif [ -n "${CATTLE_AGENT_UNINSTALL_URL:-}" ]; then
        status=$(request "$CATTLE_AGENT_UNINSTALL_URL" "$target.new" 60 system)
        [ "$status" = 200 ] ||
            die "cannot download $CATTLE_AGENT_UNINSTALL_URL: $(said "$status" "$target.new")"
    else
        uninstall_script >"$target.new" || die "cannot write $target"
    fi
    verify "$target.new" "${CATTLE_AGENT_UNINSTALL_CHECKSUM:-}" "the uninstall script"
    { chmod 755 "$target.new" && mv -f "$target.new" "$target"; } || die "cannot write $target"
}

write_config() {
    {
        echo "workDirectory: $VAR_DIR/work"
        echo "appliedPlanDirectory: $VAR_DIR/applied"
        echo "remoteEnabled: $REMOTE"
        echo "localEnabled: $LOCAL"
        echo "localPlanDirectory: $VAR_DIR/plans"
        echo "interlockDirectory: $VAR_DIR/interlock"
        echo "preserveWorkDirectory: $PRESERVE"
        if [ "$REMOTE" = true ]; then
            echo "connectionInfoFile: $VAR_DIR/rancher2_connection_info.json"
        fi
    } >"$WORK/config.yaml"
    mv -f "$WORK/config.yaml" "$ROOT$CONFIG_DIR/config.yaml" || die "cannot write $CONFIG_DIR/config.yaml"
}

# --- registration ------------------------------------------------------------------------------------

machine_id() {
    id_file="$ROOT$CONFIG_DIR/cattle-id"
    if [ -z "${CATTLE_ID:-}" ] && [ -s "$id_file" ]; then CATTLE_ID=$(head -n 1 "$id_file" | tr -d '[:space:]'); fi
    if [ -z "${CATTLE_ID:-}" ]; then
        head -c 64 /dev/urandom >"$WORK/random" || die "cannot read /dev/urandom"
        CATTLE_ID=$(sha256 "$WORK/random" | cut -c 1-63)
    fi
    printf '%s\n' "$CATTLE_ID" >"$WORK/cattle-id"
    mv -f "$WORK/cattle-id" "$id_file" || die "cannot write $CONFIG_DIR/cattle-id"
}

ask_cloud() {
    : >"$WORK/cloud-headers"
    if [ -n "${2:-}" ]; then printf '%s\n' "$2" >"$WORK/cloud-headers"; fi
    status=$(request "$1" "$WORK/cloud" 60 system "$WORK/cloud-headers")
    [ "$status" = 200 ] || return 1
    head -n 1 "$WORK/cloud" | tr -d '[:space:]'
}

# The address meant: told by a cloud, of an interface, or as given.
resolve() {
    link=http://169.254.169.254
    azure="$link/metadata/instance/network/interface/0/ipv4/ipAddress/0"
    google=http://metadata.google.internal/computeMetadata/v1/instance/network-interfaces/0
    case "$1" in
        awslocal) ask_cloud "$link/latest/meta-data/local-ipv4" ;;
        awspublic) ask_cloud "$link/latest/meta-data/public-ipv4" ;;
        doprivate) ask_cloud "$link/metadata/v1/interfaces/private/0/ipv4/address" ;;
        dopublic) ask_cloud "$link/metadata/v1/interfaces/public/0/ipv4/address" ;;
        azprivate) ask_cloud "$azure/privateIpAddress?api-version=2017-08-01&format=text" 'Metadata: true' ;;
        azpublic) ask_cloud "$azure/publicIpAddress?api-version=2017-08-01&format=text" 'Metadata: true' ;;
        gceinternal) ask_cloud "$google/ip" 'Metadata-Flavor: Google' ;;
        gceexternal) ask_cloud "$google/access-configs/0/external-ip" 'Metadata-Flavor: Google' ;;
        packetlocal) ask_cloud https://metadata.packet.net/2009-04-04/meta-data/local-ipv4 ;;
        packetpublic) ask_cloud https://metadata.packet.net/2009-04-04/meta-data/public-ipv4 ;;
        ipify) ask_cloud https://api.ipify.org ;;
        */* | . | ..) printf '%s' "$1" ;;
        *)
            if [ -n "$1" ] && [ -d "/sys/class/net/$1" ]; then
                has ip || die "the address of the interface $1 cannot be found without the program ip"
                ip -o addr show dev "$1" scope global | sed -n 's/.* inet6* \([0-9a-fA-F.:]*\).*/\1/p' | head -n 1
            else
                printf '%s' "$1"
            fi
            ;;
    esac
}

addresses() {
    ADDRESS=$(resolve "${CATTLE_ADDRESS:-}") && INTERNAL_ADDRESS=$(resolve "${CATTLE_INTERNAL_ADDRESS:-}") &&
        { [ -z "${CATTLE_ADDRESS:-}" ] || [ -n "$ADDRESS" ]; } &&
        { [ -z "${CATTLE_INTERNAL_ADDRESS:-}" ] || [ -n "$INTERNAL_ADDRESS" ]; } && return 0
    REASON="no address is found for ${CATTLE_ADDRESS:-} ${CATTLE_INTERNAL_ADDRESS:-}"
    return 1
}

flag() {
    if is_true "${1:-}"; then echo true; else echo false; fi
}

registration_headers() {
    printf 'Authorization: Bearer %s\n' "$TOKEN"
    printf 'X-Cattle-Id: %s\n' "$CATTLE_ID"
    # With a bootstrap token the server knows the rest.
    is_true "${CATTLE_ROLE_NONE:-}" && return 0
    printf 'X-Cattle-Role-Etcd: %s\n' "$(flag "${CATTLE_ROLE_ETCD:-}")"
    printf 'X-Cattle-Role-Control-Plane: %s\n' "$(flag "${CATTLE_ROLE_CONTROLPLANE:-}")"
    printf 'X-Cattle-Role-Worker: %s\n' "$(flag "${CATTLE_ROLE_WORKER:-}")"
    # Neither tool sends a header without a value the way it is written.
    if [ -n "${CATTLE_NODE_NAME:-}" ]; then printf 'X-Cattle-Node-Name: %s\n' "$CATTLE_NODE_NAME"; fi
    if [ -n "$ADDRESS" ]; then printf 'X-Cattle-Address: %s\n' "$ADDRESS"; fi
    if [ -n "$INTERNAL_ADDRESS" ]; then printf 'X-Cattle-Internal-Address: %s\n' "$INTERNAL_ADDRESS"; fi
    if [ -n "${CATTLE_LABELS:-}" ]; then printf 'X-Cattle-Labels: %s\n' "$CATTLE_LABELS"; fi
    if [ -n "${CATTLE_TAINTS:-}" ]; then printf 'X-Cattle-Taints: %s\n' "$CATTLE_TAINTS"; fi
}

connect() {
    status=$(request "$SERVER/v3/connect/agent" "$WORK/connection" 130 "$TRUST" "$WORK/headers")
    if [ "$status" = 200 ]; then
        if valid_connection; then return 0; fi
        REASON="$SERVER sent connection information that is not usable"
        return 1
    fi
    REASON="$SERVER does not register this machine: $(said "$status" "$WORK/connection")"
    case "$status" in
        400 | 401 | 403 | 404 | 409)
            # Of several servers one may not know a token yet that was made a moment ago. It does the next time.
            refusals=$((refusals + 1))
            limit=12
            if [ "$status" = 401 ]; then limit=2; fi
            if [ "$refusals" -ge "$limit" ]; then return 2; fi
            ;;
        *) refusals=0 ;;
    esac
    return 1
}

valid_connection() {
    for key in kubeConfig namespace secretName; do
        grep -q "\"$key\": *\"[^\"]" "$WORK/connection" || return 1
    done
    if "$ROOT$BIN" validate-connection --help >/dev/null 2>&1; then
        "$ROOT$BIN" validate-connection "$WORK/connection" >/dev/null 2>&1 || return 1
    fi
    return 0
}

register() {
    refusals=0
    machine_id
    until_done addresses
    registration_headers >"$WORK/headers"
    info "registering with $SERVER"
    until_done connect
    chmod 600 "$WORK/connection"
    mv -f "$WORK/connection" "$ROOT$VAR_DIR/rancher2_connection_info.json" ||
        die "cannot write $VAR_DIR/rancher2_connection_info.json"
}

# --- running it --------------------------------------------------------------------------------------

environment() {
    for variable in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
        eval "value=\${$variable:-}"
        case "$value" in
            '' | *[[:cntrl:]]*) ;;
            *) printf '%s=%s\n' "$variable" "$value" ;;
        esac
    done
    if [ "$PREFIX" != /usr/local ]; then
        printf 'PATH=%s:%s\n' "$PATH" "${CATTLE_AGENT_FALLBACK_PATH:-/opt/rke2/bin:/opt/bin}"
    fi
}

# Only the agent itself is killed with its unit: an instruction under way goes on.
unit() {
    cat <<TEXT
[Unit]
Description=Remuda node agent
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
EnvironmentFile=-/etc/default/$NAME
EnvironmentFile=-/etc/sysconfig/$NAME
EnvironmentFile=-$UNIT_DIR/$NAME.env
Type=simple
Restart=always
RestartSec=5s
KillMode=process
Environment=CATTLE_LOGLEVEL=$LOG_LEVEL
Environment=CATTLE_AGENT_CONFIG=$CONFIG_DIR/config.yaml
Environment=CATTLE_AGENT_STRICT_VERIFY=$STRICT
ExecStart=$BIN sentinel
TEXT
}

start_systemd() {
    (umask 022 && mkdir -p "$ROOT$UNIT_DIR") || die "cannot create $UNIT_DIR"
    unit >"$WORK/unit"
    chmod 644 "$WORK/unit"
    mv -f "$WORK/unit" "$ROOT$UNIT_DIR/$NAME.service" || die "cannot write $UNIT_DIR/$NAME.service"
    environment >"$WORK/env"
    mv -f "$WORK/env" "$ROOT$UNIT_DIR/$NAME.env" || die "cannot write $UNIT_DIR/$NAME.env"
    is_true "${CATTLE_AGENT_SKIP_START:-}" && return 0
    systemctl daemon-reload || die "systemctl daemon-reload failed"
    systemctl enable "$NAME" || die "cannot enable $NAME"
    systemctl restart "$NAME" || die "cannot start $NAME; systemctl status $NAME tells why"
    info "$NAME.service is started"
}

# Keeps the agent running where there is no service manager. Notes itself the way the agent's own supervisor
# does, so that either is found and ended by whatever installs or removes the agent next.
supervisor_script() {
    cat <<TEXT
#!/bin/sh
agent=
trap 'kill "\$agent" 2>/dev/null; wait "\$agent" 2>/dev/null; rm -f "$ROOT$VAR_DIR/supervisor.pid"; exit 0' HUP INT TERM
cat "/proc/\$\$/stat" >"$ROOT$VAR_DIR/supervisor.pid"
while :; do
    size=\$(wc -c <"$ROOT$VAR_DIR/agent.log" 2>/dev/null || echo 0)
    if [ "\$size" -gt 16777216 ]; then mv -f "$ROOT$VAR_DIR/agent.log" "$ROOT$VAR_DIR/agent.log.1"; fi
    "$ROOT$BIN" sentinel >>"$ROOT$VAR_DIR/agent.log" 2>&1 &
    agent=\$!
    wait "\$agent"
    sleep 5 &
    agent=\$!
    wait "\$agent"
done
TEXT
}

start_supervisor() {
    supervisor_script >"$WORK/supervise.sh"
    mv -f "$WORK/supervise.sh" "$ROOT$VAR_DIR/supervise.sh" || die "cannot write $VAR_DIR/supervise.sh"
    is_true "${CATTLE_AGENT_SKIP_START:-}" && return 0
    export CATTLE_LOGLEVEL="$LOG_LEVEL" CATTLE_AGENT_CONFIG="$ROOT$CONFIG_DIR/config.yaml"
    export CATTLE_AGENT_STRICT_VERIFY="$STRICT"
    # The agent has no business with what registered it.
    unset CATTLE_TOKEN TOKEN
    rm -f "$ROOT$VAR_DIR/supervisor.pid"
    detach=nohup
    if has setsid; then detach=setsid; fi
    (cd / && exec "$detach" sh "$ROOT$VAR_DIR/supervise.sh") </dev/null >/dev/null 2>&1 &
    waited=0
    until supervisor; do
        [ "$waited" -lt 50 ] || die "the agent could not be started; see $VAR_DIR/agent.log"
        waited=$((waited + 1))
        sleep 0.1
    done
    info "there is no systemd: the agent is kept running by $VAR_DIR/supervise.sh (log: $VAR_DIR/agent.log)"
    warn "nothing starts it again after the machine was restarted; run $VAR_DIR/supervise.sh at boot"
}

main() {
    if [ "${DEBUG:-}" = 1 ]; then set -x; fi
    parse "$@"
    settle
    check
    prepare
    hold_plans
    if [ "$REMOTE" = true ]; then
        until_done establish_trust
    else
        TRUST=system
    fi
    stop_service
    install_binary
    install_uninstall
    write_config
    if [ "$REMOTE" = true ] && [ -n "$TOKEN" ]; then register; fi
    DONE=true
    rm -f "$PENDING"
    if has_systemd; then start_systemd; else start_supervisor; fi
}

uninstall_script() {
    cat <<'END_OF_UNINSTALL'
@UNINSTALL@
END_OF_UNINSTALL
}

main "$@"
