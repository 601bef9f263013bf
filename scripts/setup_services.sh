#!/usr/bin/env bash
# Install the services of the tests: Java 17+, Redis, Chromium, kcat, openssl, nginx, Prometheus, Alertmanager; the jars
# of Apache Kafka, Apicurio Registry and Spark.
# Missing packages are installed with apt for root. Other users get one line with the packages to install.
set -euo pipefail
bin=${1:-.venv/bin}
missing=()

java_is_new_enough() {
  local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
  command -v "$java" >/dev/null || return 1
  version=$("$java" -version 2>&1 | sed -n 's/^[a-z]* version "\([0-9]*\).*/\1/p')
  [[ ${version:-0} -ge 17 ]]
}
java_is_new_enough || missing+=(openjdk-17-jre-headless)
command -v redis-server >/dev/null || missing+=(redis-server)
command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core fonts-liberation)
command -v kcat >/dev/null || missing+=(kcat)
command -v openssl >/dev/null || missing+=(openssl)
PATH=$PATH:/usr/sbin command -v nginx >/dev/null || missing+=(nginx-light)
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing+=(prometheus)
command -v prometheus-alertmanager >/dev/null || missing+=(prometheus-alertmanager)

if ((${#missing[@]})); then
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "Installing ${missing[*]} …"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    policy=/usr/sbin/policy-rc.d # exit 101: do not start the services that the packages bring
    if [[ ! -e $policy ]]; then
      trap 'rm -f "$policy"' EXIT
      printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    echo "The tests need these; install them and run again: ${missing[*]} (Java 17 or newer)" >&2
    exit 2
  fi
fi

# Retry, because a repository may be slow for a moment. Fetched files stay in the cache.
fetch() {
  for attempt in 1 2 3; do
    "$bin/producer-core" "$1" fetch "${@:2}" && return
    echo "Fetching again ($attempt of 3) …" >&2
  done
  return 2
}
fetch broker
fetch broker --schema-registry
fetch pipeline
