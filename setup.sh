#!/bin/sh
# Installs what the tests use: servers, a model checker, C compilers, other
# languages. With arguments, only these packages. Valkey comes from backports and is optional:
# the tests run on whichever servers there are.
set -eu
packages=${*:-redis-server redis-sentinel redis-tools gcc libc6-dev spin tcc postgresql python3-redis php-cli php-redis php-malkusch-lock default-jre-headless libzookeeper-java etcd-server make}
left=
trap 'rm -f $left' EXIT
trap 'exit 130' HUP INT TERM # not every shell runs the trap of EXIT when a signal ends it
missing=
for package in $packages; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
	apt-get update -q
	# No service is to be started: the tests start their own servers.
	if [ ! -e /usr/sbin/policy-rc.d ]; then
		left=/usr/sbin/policy-rc.d
		printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
		chmod +x /usr/sbin/policy-rc.d
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
fi
if [ $# -eq 0 ] && ! command -v valkey-server >/dev/null; then
	list=/etc/apt/sources.list.d/redlatch-backports.list
	left="$left $list"
	. /etc/os-release
	echo "deb http://deb.debian.org/debian $VERSION_CODENAME-backports main" >$list
	apt-get update -q || true
	DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends valkey-server ||
		echo "setup: no valkey-server to be had; testing on redis-server alone" >&2
fi
