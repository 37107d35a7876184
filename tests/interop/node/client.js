// The Node client as a push consumer or a producer: prints "ready", then one line of JSON for each message that was
// received or acknowledged, until standard input ends.
//
//     node client.js NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|send
//
// A producer sends a message each 100 ms, with the tags of EXPRESSION in turns, and each until it is acknowledged.
'use strict';

const { Consumer, Message, Producer } = require('ali-ons');

const [nameSrv, group, topic, expression, mode] = process.argv.slice(2);
const quiet = { info() {}, warn() {}, debug() {}, error: console.error };
const common = { httpclient: {}, nameSrv, accessKeyId: 'none', accessKeySecret: 'none', logger: quiet };
const pause = () => new Promise(resolve => setTimeout(resolve, 100));
let ended = false;

function say(body, tags, queueId, offset) {
  console.log(JSON.stringify({ body, tags, queueId, offset: Number(offset) }));
}

async function send() {
  const tags = expression.split(' || ');
  const producer = new Producer({ ...common, producerGroup: group });
  producer.on('error', console.error);
  await producer.ready();
  console.log('ready');
  for (let number = 0; !ended; number++) {
    const message = new Message(topic, tags[number % tags.length], `node ${number}`);
    for (let acknowledged = false; !acknowledged && !ended;) {
      await pause();
      try {
        const result = await producer.send(message);
        acknowledged = result.sendStatus === 'SEND_OK';
        if (acknowledged) say(`node ${number}`, message.tags, result.messageQueue.queueId, result.queueOffset);
      } catch (error) {
        console.error(error.message);
      }
    }
  }
  process.exit(0);
}

function consume() {
  const consumer = new Consumer({ ...common, consumerGroup: group, isBroadcast: mode === 'broadcast' });
  consumer.on('error', console.error);
  consumer.subscribe(topic, expression, async message =>
    say(message.body.toString(), message.tags, message.queueId, message.queueOffset));
  consumer.ready().then(() => console.log('ready'));
  process.stdin.on('end', () => consumer.close().finally(() => process.exit(0)));
}

process.stdin.resume();
process.stdin.on('end', () => { ended = true; });
if (mode === 'send') {
  send();
} else {
  consume();
}
