"""One client of redis-py's Lock, for the tests: peer.py HOST:PORT

It says what it is, then answers each line of its standard input with one line:
"acquire NAME TTL" with "ok" or "held", "release" with "ok" or "lost", either
with "error WHY". The end of its input ends it.
"""

import sys

import redis
from redis.exceptions import LockNotOwnedError
from redis.lock import Lock

host, port = sys.argv[1].split(":")
client = redis.Redis(host, int(port))
lock = None


def answer(verb, name="", ttl=""):
    global lock
    if verb == "acquire":
        lock = Lock(client, name, timeout=int(ttl) / 1000, blocking=False)
        return "ok" if lock.acquire() else "held"
    if verb == "release":
        try:
            lock.release()
            return "ok"
        except LockNotOwnedError:
            return "lost"
    return "error no such verb: " + verb


print("redis-py", redis.__version__, flush=True)
for line in sys.stdin:
    try:
        print(answer(*line.split()), flush=True)
    except Exception as err:
        print("error", repr(err), flush=True)
