"""The Python samples of the documents, as they are printed there, and a way to run them.

Wrapped lines are joined; nothing else in the texts is changed. What may differ is done from outside: `run`
puts the broker's address for `localhost:9092` and drops the sleeps; the tests give endless loops a timeout.
"""

from __future__ import annotations

import re
from typing import Any

SIMPLE_PRODUCER = """
from kafka import KafkaProducer
from time import sleep

producer = KafkaProducer(
    bootstrap_servers=['localhost:9092'])

producer.send('sample3', b'a_value')
sleep(5)

producer.close()
"""

SIMPLE_CONSUMER = """
from kafka import KafkaConsumer

consumer = KafkaConsumer(
    'sample3', auto_offset_reset='earliest',
    bootstrap_servers=['localhost:9092'],
    consumer_timeout_ms=1000)

for message in consumer:
    # value and key are raw bytes
    # decode if necessary!

    print ("%s:%d:%d: key=%s value=%s" %
            (message.topic, message.partition,
             message.offset, message.key, message.value))

consumer.close()
"""

CONNECT_KAFKA_PRODUCER = """
from kafka import KafkaProducer

def connect_kafka_producer():
    _producer = None
    try:
        _producer = KafkaProducer(bootstrap_servers=['localhost:9092'])
    except Exception as ex:
        print('Exception while connecting Kafka')
        print(str(ex))
    finally:
        return _producer
"""

SEND_VALUE_AND_KEY = """
producer.send('test', b'a_value')
producer.send('test', value=b'a_value', key=b'a_key')
"""

SEND_STRING_AND_INT = """
from time import sleep

str_value = 'a_string_value'
bytes_value=bytes(str_value, 'utf-8')
producer.send('test', bytes_value)
sleep(5)

int_value = 5
bytes_value=bytes(int_value)
producer.send('test', bytes_value)
sleep(5)
"""

THOUSAND_JSON_NUMBERS = """
from time import sleep
from json import dumps
from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=['localhost:9092'],
                          value_serializer=lambda x: dumps(x).encode('utf-8'))

for e in range(1000):
    data = {'number' : e}
    producer.send('test', data)
    sleep(5)
"""

RECORD_METADATA = """
# Asynchronous by default
future = producer.send('test', b'raw_bytes')

# Block for 'synchronous' sends
try:
    record_metadata = future.get(timeout=10)
except KafkaError:
    # Decide what to do if produce request failed...
    log.exception()
    pass

# Successful result returns assigned partition and offset
print (record_metadata.topic)
print (record_metadata.partition)
print (record_metadata.offset)
"""

PUBLISH_MESSAGE = """
def publish_message(producer_instance, topic_name, key, value):
    try:
        key_bytes = bytes(key, encoding='utf-8')
        value_bytes = bytes(value, encoding='utf-8')
        producer_instance.send(topic_name, key=key_bytes, value=value_bytes)
        producer_instance.flush()
        print('Message published successfully.')
    except Exception as ex:
        print('Exception in publishing message')
        print(str(ex))
"""

BASIC_CONSUMER = """
# basic
from kafka import KafkaConsumer
consumer = KafkaConsumer('first_topic',bootstrap_servers=['localhost:9092'],auto_offset_reset='earliest')
for msg in consumer:
    print (msg.value)
"""

# The loop has one more line in the text, a send with `key = 'key'`: kafka-python refuses a key of text by a
# TypeError before any broker sees it. STRING_KEYS below is the sample that works.
BASIC_PRODUCER = """
# basic
from kafka import KafkaProducer

producer = KafkaProducer(bootstrap_servers=['localhost:9092'],acks = 1)

for _ in range(10):
    future = producer.send('test-topic', b'some_message_bytes')
    # result = future.get(timeout=60)  # do not block, it will kill performance
    # print(result)
# producer.flush()  # Block until all pending messages are at least put on the network
producer.close()  # make sure to .close() your producer before shutting down your application
"""

JSON_MESSAGES = """
# Serialize json messages
import json
producer = KafkaProducer(value_serializer=lambda v: json.dumps(v).encode('utf-8'))
producer.send('fizzbuzz', {'foo': 'bar'})
"""

MSGPACK_VALUES = """
# Deserialize msgpack-encoded values
consumer = KafkaConsumer(value_deserializer=msgpack.loads)  # same as key_deserializer
consumer.subscribe(['msgpackfoo'])
for msg in consumer:
     assert isinstance(msg.value, dict)
"""

STRING_KEYS = """
# Serialize string keys
producer = KafkaProducer(key_serializer=str.encode)
producer.send('flipflap', key='ping', value=b'1234')
"""

GZIP_MESSAGES = """
# Compress messages
producer = KafkaProducer(compression_type='gzip')
for i in range(1000):
     producer.send('foobar', b'msg %d' % i)
"""


def run(sample: str, bootstrap: str, **names: Any) -> dict[str, Any]:
    """Runs a sample with these names defined, and returns every name that it defined."""
    source = re.sub(r"\bsleep\(5\)", "pass", sample.replace("localhost:9092", bootstrap))
    namespace = dict(names)
    exec(compile(source, "<sample>", "exec"), namespace)
    return namespace
