#!/bin/sh
# A whole driver, for machines behind a small web service that takes user data:
#   PUT    $url/machines/ID   makes the machine, or finds that it is there; answers with its address
#   GET    $url/machines/ID   200 if there is such a machine, else 404
#   DELETE $url/machines/ID   removes it, if it is there
#   GET    $url/machines      the ID of every machine, one per line
# Copy it and put your own commands in place of the five calls. The token travels on standard input: command
# lines can be read by anybody.
call() {
    method=$1 && shift
    printf 'Authorization: Bearer %s' "$REMUDA_FLAG_TOKEN" |
        curl -sSf -H @- -X "$method" "$REMUDA_FLAG_URL/machines${REMUDA_ID:+/$REMUDA_ID}" "$@"
}
case "$1" in
flags)  echo '{"flags":[{"name":"rest-url","usage":"Address of the service","place":true},{"name":"rest-token","env":"REST_TOKEN","usage":"Token of the service"},{"name":"rest-userdata","usage":"File with what the machine does at its first start"}]}' ;;
create) ip=$(call PUT --data-binary "@$REMUDA_FLAG_USERDATA") && echo "{\"addresses\":{\"ip\":\"$ip\"}}" ;;
status) case $(call GET -o /dev/null -w '%{http_code}') in
        200) echo '{"status":"Running"}' ;;
        404) echo '{"status":"Not Found"}' ;;
        *) exit 1 ;;
        esac ;;
remove) call DELETE ;;
list)   ids=$(call GET) && for id in $ids; do echo "{\"machines\":[{\"id\":\"$id\"}]}"; done ;;
pre-create-check) [ -n "$REMUDA_FLAG_URL" ] || { echo "no rest-url" >&2; exit 1; } ;;
*) exit 64 ;;
esac
