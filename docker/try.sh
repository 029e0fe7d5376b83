#!/usr/bin/env bash
# Shows that what compose.yaml describes works: it serves, takes up a changed policy, and survives the death of each
# container in turn. Needs docker-compose (or DOCKER_COMPOSE="docker compose"), bash and curl; of what it made the images stay.
set -euo pipefail
cd "$(dirname "$0")"

export COMPOSE_PROJECT_NAME=slipstream-try
SLIPSTREAM_POLICY=$(mktemp -d)
export SLIPSTREAM_POLICY SLIPSTREAM_GRPC_PORT=51050 SLIPSTREAM_HTTP_PORT=51080 # beside what may run here already
SERVICES="verifier-1 verifier-2 drafter-1 drafter-2 gateway"
URL=http://127.0.0.1:$SLIPSTREAM_HTTP_PORT
REQUEST='{"model": "smollm2-135m-instruct", "prompt": "Once upon a time", "max_tokens": 100, "temperature": 0, "ignore_eos": true}'

compose() { ${DOCKER_COMPOSE:-docker-compose} "$@"; }
say() { printf '%s %s\n' "$(date +%T)" "$*"; }
fail() {
    say "FAILED: $*"
    compose logs --tail 20 $SERVICES
    exit 1
}
clean_up() {
    compose down --volumes --timeout 15 >/dev/null 2>&1
    rm -rf "$SLIPSTREAM_POLICY"
}
trap clean_up EXIT

within() { # SECONDS COMMAND...: until the command succeeds
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 1
    done
}
ask() { curl --silent --fail --max-time 180 "$URL/v1/completions" -H 'Content-Type: application/json' -d "$REQUEST"; }
status_of() { curl --silent --output /dev/null --write-out '%{http_code}' "$URL/v1/models"; }
answers() { [ "$(status_of)" = "$1" ]; }
metric() { # NAME, or NAME{LABELS}, in the gateway's metrics
    compose exec -T gateway python -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9090/metrics").read().decode())' \
        2>/dev/null | sed -n "s/^$1 //p"
}
connected() { [ "$(metric slipstream_verifiers)/$(metric slipstream_drafters)" = 2.0/2.0 ]; }
all_healthy() { [ "$(docker inspect --format '{{.State.Health.Status}}' $(compose ps -q $SERVICES) | sort -u)" = healthy ]; }
kill_inside() { compose exec -T "$1" sh -c 'kill -9 -1' || true; } # all but the init, which then ends; as a crash would
use_policy() { # SED-SCRIPT: the shipped policy with a change, put in the place of the present one as editors do
    sed "$1" policy/tenants.yaml >"$SLIPSTREAM_POLICY/next"
    chmod 644 "$SLIPSTREAM_POLICY/next"
    mv "$SLIPSTREAM_POLICY/next" "$SLIPSTREAM_POLICY/tenants.yaml"
}

chmod 755 "$SLIPSTREAM_POLICY"
use_policy ''
say "building and starting $SERVICES"
compose build --quiet $SERVICES model
compose up --detach $SERVICES
within 300 connected || fail "verifiers and drafters did not come"
within 120 all_healthy || fail "health checks do not pass"
say "all are healthy; the answer to a request:"
ask || fail "a request was not served"
echo
drafted=$(metric 'slipstream_spec_decode_num_accepted_tokens_total{proposer="draft_model",tenant="public"}')
[ -n "$drafted" ] || fail "no drafter's token was accepted"
say "tokens of it that a drafter had guessed: $drafted"

say "a policy that wants a key"
use_policy 's/anonymous: true/key_sha256: [c018c41c1afaf2c0b66c64f97d0ee135657b699ad260f299234cd40a5d625e0e]/'
within 10 answers 401 || fail "the changed policy was not taken up"
use_policy ''
within 10 answers 200 || fail "the first policy was not taken up again"
say "and back again, without a restart"

for victim in $SERVICES; do
    say "killing $victim while four requests run, so that it has some"
    running=""
    for _ in 1 2 3 4; do
        ask >/dev/null &
        running="$running $!"
    done
    sleep 1
    kill_inside "$victim"
    for request in $running; do # the gateway's death takes its connections along
        wait "$request" || [ "$victim" = gateway ] || fail "a request did not outlive $victim"
    done
    within 120 connected || fail "$victim did not come back"
    ask >/dev/null || fail "no request is served after $victim came back"
done
within 120 all_healthy || fail "not all are healthy again"
say "each was survived"
