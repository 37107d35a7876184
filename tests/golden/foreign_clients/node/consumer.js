// A push consumer of the Node client; see ../../foreign_capture.py. node consumer.js NAMESERVER GROUP TOPIC EXPRESSION
'use strict';

const { Consumer } = require('ali-ons');

const [nameSrv, consumerGroup, topic, expression] = process.argv.slice(2);
const quiet = { info() {}, warn() {}, debug() {}, error: console.error };
const consumer = new Consumer({ httpclient: {}, nameSrv, consumerGroup, accessKeyId: 'none', accessKeySecret: 'none', logger: quiet });
consumer.on('error', console.error);
consumer.subscribe(topic, expression, async message => console.log(message.body.toString()));
consumer.ready().then(() => console.log('ready'));
process.stdin.resume();
process.stdin.on('end', () => consumer.close().finally(() => process.exit(0)));
