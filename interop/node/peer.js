// One client of one npm library, for the tests: node peer.js LIBRARY HOST:PORT...
//
// It says what it is, then answers each line of its standard input with one
// line: "acquire NAME TTL" with "ok" or "held", "release" with "ok" or "lost",
// either with "error WHY". The end of its input ends it.
'use strict'

const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { createInterface } = require('node:readline')
const Redis = require('ioredis')

function version(name) {
  const file = join(__dirname, 'node_modules', name, 'package.json')
  return JSON.parse(readFileSync(file, 'utf8')).version
}

// Each has one try, and renews nothing by itself.
const libraries = {
  'redlock': (clients) => {
    const Redlock = require('redlock')
    const redlock = new Redlock(clients, { retryCount: 0 })
    redlock.on('clientError', (err) => console.error(err))
    let lock
    return {
      async acquire(name, ttl) {
        try {
          lock = await redlock.lock(name, ttl)
          return true
        } catch (err) {
          if (err instanceof Redlock.LockError) return false
          throw err
        }
      },
      async release() {
        try {
          await lock.unlock()
          return true
        } catch (err) {
          if (err instanceof Redlock.LockError) return false
          throw err
        }
      }
    }
  },

  '@sesamecare-oss/redlock': (clients) => {
    const { Redlock, ExecutionError } = require('@sesamecare-oss/redlock')
    const redlock = new Redlock(clients, { retryCount: 0 })
    redlock.on('error', (err) => console.error(err.name))
    let lock
    return {
      async acquire(name, ttl) {
        try {
          lock = await redlock.acquire([name], ttl)
          return true
        } catch (err) {
          if (err instanceof ExecutionError) return false
          throw err
        }
      },
      async release() {
        try {
          await lock.release()
          return true
        } catch (err) {
          if (err instanceof ExecutionError) return false
          throw err
        }
      }
    }
  },

  'redis-semaphore': (clients) => {
    const { Mutex, RedlockMutex } = require('redis-semaphore')
    let mutex
    return {
      acquire(name, ttl) {
        const options = { lockTimeout: ttl, acquireAttemptsLimit: 1, retryInterval: 1, refreshInterval: 0 }
        mutex = clients.length === 1 ? new Mutex(clients[0], name, options) : new RedlockMutex(clients, name, options)
        return mutex.tryAcquire()
      },
      async release() {
        await mutex.release() // does not say whether it was still held
        return true
      }
    }
  }
}

async function main() {
  const [name, ...addresses] = process.argv.slice(2)
  const clients = addresses.map((address) => {
    const [host, port] = address.split(':')
    return new Redis({ host, port: Number(port) })
  })
  const library = libraries[name](clients)
  console.log(`${name} ${version(name)}, ioredis ${version('ioredis')}`)
  for await (const line of createInterface({ input: process.stdin })) {
    const [verb, resource, ttl] = line.split(' ')
    try {
      if (verb === 'acquire') console.log((await library.acquire(resource, Number(ttl))) ? 'ok' : 'held')
      else if (verb === 'release') console.log((await library.release()) ? 'ok' : 'lost')
      else console.log(`error no such verb: ${verb}`)
    } catch (err) {
      console.log(`error ${String(err).replaceAll('\n', ' ')}`)
    }
  }
  for (const client of clients) client.disconnect()
}

main()
