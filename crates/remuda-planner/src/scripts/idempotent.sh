#!/bin/sh
# Runs a command once per attempt of the agent: KEY VALUE-HASH COMMAND-HASH COMMAND DIRECTORY [ARGUMENT...]
# The attempt is noted before the command runs, so an agent that restarts does not run it again.
key=$1
value=$2
hash=$3
command=$4
directory=$5
shift 5

state="$directory/idempotence/$key/$hash/$value"
done=$(cat "$state/last-attempt" 2>/dev/null || echo none)
if [ "$done" = "$CATTLE_AGENT_ATTEMPT_NUMBER" ]; then
    echo "attempt $done of $key for $value has already been made"
    exit 0
fi
mkdir -p "$state"
echo "$CATTLE_AGENT_ATTEMPT_NUMBER" >"$state/last-attempt"
exec "$command" "$@"
