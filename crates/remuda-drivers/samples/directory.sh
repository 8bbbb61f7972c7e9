#!/bin/sh
# A whole driver: its "machines" are directories. Copy it and replace the five commands.
here="$REMUDA_FLAG_ROOT/$REMUDA_ID"
case "$1" in
flags)  echo '{"flags":[{"name":"directory-root","type":"string","default":"/tmp","usage":"Where machines are kept","place":true}]}' ;;
create) mkdir -p "$here" && echo "$REMUDA_MACHINE" > "$here/name" && echo '{"addresses":{"ip":"127.0.0.1"},"ssh":{"user":"root","port":22}}' ;;
status) if [ -d "$here" ]; then echo '{"status":"Running"}'; else echo '{"status":"Not Found"}'; fi ;;
remove) rm -rf "$here" ;;
list)   for file in "$REMUDA_FLAG_ROOT"/*/name; do
            [ -f "$file" ] || continue
            id=$(basename "$(dirname "$file")")
            echo "{\"machines\":[{\"id\":\"$id\",\"name\":\"$(cat "$file")\",\"kind\":\"directory\"}]}"
        done ;;
pre-create-check) [ -d "$REMUDA_FLAG_ROOT" ] || { echo "no directory $REMUDA_FLAG_ROOT" >&2; exit 1; } ;;
*) exit 64 ;;
esac
