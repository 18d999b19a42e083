<?php
// One client of PHPRedisMutex, for the tests: php peer.php HOST:PORT...
//
// It says what it is, then answers each line of its standard input with one line:
// "acquire NAME TTL" with "ok" or "held", "release" with "ok" or "lost", either
// with "error WHY". The end of its input ends it.

declare(strict_types=1);

require_once 'Malkusch/Lock/autoload.php';

use malkusch\lock\exception\LockReleaseException;
use malkusch\lock\mutex\PHPRedisMutex;

final class Held extends Exception
{
}

// The library tries again for as long as it locks for: this has one try.
final class OneTry extends PHPRedisMutex
{
    protected function acquire(string $key, int $expire): bool
    {
        if (!parent::acquire($key, $expire)) {
            throw new Held();
        }
        return true;
    }
}

function request(): ?array
{
    $line = fgets(STDIN);
    return $line === false ? null : explode(' ', trim($line));
}

$clients = [];
foreach (array_slice($argv, 1) as $address) {
    [$host, $port] = explode(':', $address);
    $client = new Redis();
    $client->connect($host, (int) $port);
    $clients[] = $client;
}

echo 'PHPRedisMutex, phpredis ' . phpversion('redis') . "\n";
while ($request = request()) {
    if ($request[0] !== 'acquire') {
        echo "error nothing is held\n";
        continue;
    }
    // Its keys live for a second longer than the code under the lock may run.
    $timeout = intdiv((int) $request[2], 1000) - 1;
    try {
        (new OneTry($clients, $request[1], $timeout))->synchronized(function (): void {
            echo "ok\n";
            request(); // to release
        });
        echo "ok\n";
    } catch (Held $e) {
        echo "held\n";
    } catch (LockReleaseException $e) {
        echo "lost\n";
    } catch (Throwable $e) {
        echo 'error ' . str_replace("\n", ' ', (string) $e) . "\n";
    }
}
