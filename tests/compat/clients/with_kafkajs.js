// KafkaJS. The command line and the lines of input and output are those of driver.py.
//
// It consumes in groups only: without --group it takes one of its own. Of the codecs it brings gzip; the others are
// plugged in here; none of them has to be compiled.
'use strict'
const { parseArgs } = require('node:util')
const readline = require('node:readline')
const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const BATCH = 500

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from((await zstd).decompress(buffer)),
})
const zstd = new Promise((resolve) => ZstdCodec.run((codec) => resolve(new codec.Streaming())))

const bytes = (text) => (text === null ? null : Buffer.from(text, 'hex'))
const hex = (data) => (data === null || data === undefined ? null : data.toString('hex'))
const show = (object) => process.stdout.write(JSON.stringify(object) + '\n')

async function produce(kafka, options) {
  const type = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }[options.codec]
  const producer = kafka.producer({ idempotent: options.idempotent, maxInFlightRequests: 1 })
  await producer.connect()
  const given = []
  for await (const line of readline.createInterface({ input: process.stdin })) given.push(JSON.parse(line))
  for (let start = 0; start < given.length; start += BATCH) {
    const messages = given.slice(start, start + BATCH).map(({ key, value, headers, timestamp }) => ({
      key: bytes(key),
      value: bytes(value),
      headers: Object.fromEntries(headers.map(([name, data]) => [name, bytes(data)])),
      timestamp: String(timestamp),
    }))
    // It answers per partition with the first offset: which record went where is not told.
    const answers = await producer.send({ topic: options.topic, messages, acks: -1, compression: type })
    for (const { partition, baseOffset } of answers) show({ partition, offset: Number(baseOffset) })
  }
  await producer.disconnect()
}

async function consume(kafka, options) {
  const groupId = options.group ?? `alone-${process.pid}-${Date.now()}`
  const times = { sessionTimeout: 6000, heartbeatInterval: 1000, rebalanceTimeout: 10000 }
  const consumer = kafka.consumer({ groupId, ...times, maxWaitTimeInMs: 500 }) // before it ends, its fetches do
  let missing = Number(options.count)
  const finished = new Promise((resolve) => {
    process.on('SIGTERM', resolve)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      const pairs = Object.entries(payload.memberAssignment).flatMap(([topic, ids]) => ids.map((id) => [topic, id]))
      if (options.group) show({ assigned: pairs })
    })
    consumer.on(consumer.events.CRASH, ({ payload }) => {
      console.error(payload.error)
      if (!payload.restart) process.exit(1)
    })
    setTimeout(() => {
      console.error(`${missing} records did not come in time`)
      process.exit(1)
    }, Number(options.timeout) * 1000).unref()
    consumer
      .connect()
      .then(() => consumer.subscribe({ topics: options.topics.split(','), fromBeginning: true }))
      .then(() =>
        consumer.run({
          eachBatch: async ({ batch, resolveOffset, heartbeat }) => {
            const lines = batch.messages.map(({ key, value, headers, timestamp, offset }) =>
              JSON.stringify({
                topic: batch.topic,
                partition: batch.partition,
                offset: Number(offset),
                timestamp: Number(timestamp),
                key: hex(key),
                value: hex(value),
                headers: Object.entries(headers ?? {}).map(([name, data]) => [name, hex(data)]),
              }),
            )
            await new Promise((written) => process.stdout.write(lines.join('\n') + '\n', written))
            resolveOffset(batch.lastOffset())
            await heartbeat()
            missing -= lines.length
            if (missing <= 0) resolve()
          },
        }),
      )
  })
  await finished
  await consumer.disconnect()
}

async function main() {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: {
      bootstrap: { type: 'string' },
      topic: { type: 'string' },
      codec: { type: 'string', default: 'none' },
      idempotent: { type: 'boolean', default: false },
      topics: { type: 'string' },
      count: { type: 'string' },
      group: { type: 'string' },
      timeout: { type: 'string', default: '120' },
    },
  })
  const kafka = new Kafka({ clientId: 'kafkajs', brokers: values.bootstrap.split(','), logLevel: logLevel.ERROR })
  await (positionals[0] === 'produce' ? produce : consume)(kafka, values)
}

main().then(
  () => process.exit(0),
  (failure) => {
    console.error(failure)
    process.exit(1)
  },
)
