"""The failures table: every code a producer can be given, with what it means and what to do.

Each row: code, kind, verdict, meaning, advice. The verdict is the default, before evidence: `rejected` stands
only when the message had no time for a second transmission (see `failures.judge`). Sources: librdkafka's
rdkafka_request.c (rd_kafka_handle_Produce_error), Apache Kafka's Errors.java, and measurements on 2.16.0.
"""

from __future__ import annotations

from producer_core.events import Kind, Verdict

Row = tuple[str, Kind, Verdict, str, str]

TABLE: tuple[Row, ...] = (
    # what librdkafka refuses before sending
    ("_QUEUE_FULL", "local", "not_sent", "The client's queue is full.", "Send slower, or raise buffer_memory."),
    ("_UNKNOWN_TOPIC", "local", "not_sent", "The topic does not exist.", "Create the topic, then replay."),
    ("_UNKNOWN_PARTITION", "local", "not_sent", "The topic has no such partition.", "Send without partition=, or add partitions to the topic."),
    ("_INVALID_ARG", "local", "not_sent", "The client does not accept an argument of the message.", "Look at the message's timestamp, partition and headers."),
    ("_STATE", "local", "not_sent", "The client was used out of order.", "Report this with the log; it is a mistake in producer_core."),
    ("_CONFLICT", "local", "not_sent", "The client was used in two ways that exclude each other.", "Report this with the log; it is a mistake in producer_core."),
    ("_KEY_SERIALIZATION", "local", "not_sent", "The key could not be serialised.", "Mend the key serializer, then send again."),
    ("_VALUE_SERIALIZATION", "local", "not_sent", "The value could not be serialised.", "Mend the value serializer, then send again."),
    ("_NOT_IMPLEMENTED", "local", "not_sent", "The installed librdkafka cannot do this.", "Upgrade confluent-kafka."),
    ("_NOT_CONFIGURED", "local", "not_sent", "A feature was used that is not configured.", "Set what the message names."),
    ("_READ_ONLY", "local", "not_sent", "Something read-only was to be changed.", "Report this with the log; it is a mistake in producer_core."),
    ("malformed", "local", "not_sent", "A piece of input is not a message.", "Mend the line at its source and send it again."),
    ("held", "local", "not_sent", "A copy of a message whose own delivery was still open when the producer closed.", "Replay it only if its twin did not arrive."),
    # the broker refuses this message
    ("MSG_SIZE_TOO_LARGE", "permanent", "rejected", "The message is larger than the topic or the client allows.", "Raise max.message.bytes of the topic and max_request_size, or send less; then replay."),
    ("RECORD_LIST_TOO_LARGE", "permanent", "rejected", "The batch is larger than the broker's segment.", "Lower batch_size, then replay."),
    ("INVALID_RECORD", "permanent", "rejected", "The broker does not accept the record: a compacted topic needs a key, for example.", "Look at the topic's cleanup.policy and the key; then replay what was mended."),
    ("INVALID_TIMESTAMP", "permanent", "rejected", "The timestamp is outside what the topic allows.", "Check the clock, timestamp_ms and the topic's message.timestamp settings; then replay."),
    ("INVALID_MSG_SIZE", "permanent", "rejected", "The broker found an impossible message size.", "Look for a proxy that damages traffic, then replay."),
    ("POLICY_VIOLATION", "permanent", "rejected", "A policy of the broker forbids this.", "Ask the cluster's owner which policy it is; replay when it is settled."),
    # the broker refuses this producer
    ("TOPIC_AUTHORIZATION_FAILED", "permanent", "rejected", "This user may not write to the topic.", "Grant WRITE on the topic, then replay."),
    ("CLUSTER_AUTHORIZATION_FAILED", "permanent", "rejected", "This user may not do this on the cluster.", "Grant IDEMPOTENT_WRITE on the cluster (brokers before 2.8), then replay."),
    ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "fatal", "rejected", "This user may not use the transactional id.", "Grant WRITE and DESCRIBE on the transactional id."),
    ("SASL_AUTHENTICATION_FAILED", "permanent", "not_sent", "The broker does not accept the credentials.", "Check user, password and mechanism; messages wait until their time-out."),
    ("_AUTHENTICATION", "permanent", "not_sent", "The broker does not accept the credentials.", "Check user, password and mechanism; messages wait until their time-out."),
    ("UNSUPPORTED_SASL_MECHANISM", "permanent", "not_sent", "The broker does not offer this SASL mechanism.", "Set sasl_mechanism to one that the broker lists."),
    ("ILLEGAL_SASL_STATE", "permanent", "not_sent", "The broker did not expect authentication here.", "Check security_protocol against the broker's listener."),
    ("SECURITY_DISABLED", "permanent", "not_sent", "The broker has no security configured.", "Use the broker's plain listener, or configure its security."),
    # the settings do not fit
    ("TOPIC_EXCEPTION", "permanent", "rejected", "The topic's name is not valid, or the topic is internal.", "Use another topic."),
    ("INVALID_REQUIRED_ACKS", "permanent", "rejected", "The broker does not know this acks setting.", "Use acks='all'."),
    ("UNSUPPORTED_COMPRESSION_TYPE", "permanent", "rejected", "The broker does not know this compression.", "Use lz4, gzip or snappy; then replay."),
    ("UNSUPPORTED_FOR_MESSAGE_FORMAT", "permanent", "rejected", "The topic's message format is too old for this.", "Upgrade the topic's message format, then replay."),
    ("UNSUPPORTED_VERSION", "permanent", "rejected", "The broker is too old, or too new, for this client.", "Upgrade the older of the two, then replay."),
    ("INVALID_REQUEST", "permanent", "rejected", "The broker does not understand the request.", "Look at the broker's log; a proxy in between may be at fault."),
    ("INVALID_CONFIG", "permanent", "rejected", "The broker says that a configuration is invalid.", "Look at the topic's settings, then replay."),
    ("_UNSUPPORTED_FEATURE", "fatal", "not_sent", "The broker cannot do what idempotence needs.", "Use brokers from 0.11 on, or switch idempotence off."),
    # passes by itself: librdkafka retries these inside
    ("LEADER_NOT_AVAILABLE", "temporary", "rejected", "The partition has no leader at the moment.", "It passes when a leader is elected; look at the brokers if it does not."),
    ("NOT_LEADER_FOR_PARTITION", "temporary", "rejected", "The partition's leader moved.", "It passes by itself."),
    ("UNKNOWN_TOPIC_OR_PART", "temporary", "rejected", "The broker does not know the topic or partition.", "Create the topic; just after creation it passes by itself."),
    ("BROKER_NOT_AVAILABLE", "temporary", "rejected", "The broker is not available.", "Look at the broker; replay when it is back."),
    ("REPLICA_NOT_AVAILABLE", "temporary", "rejected", "A replica is not available.", "It passes by itself; look at the brokers if it does not."),
    ("NOT_ENOUGH_REPLICAS", "temporary", "rejected", "Fewer replicas are in sync than min.insync.replicas asks for.", "Bring the missing brokers back; replay then."),
    ("KAFKA_STORAGE_ERROR", "temporary", "possibly_persisted", "The broker cannot use its disk.", "Look at the broker's disk; replay when it is mended."),
    ("COORDINATOR_LOAD_IN_PROGRESS", "temporary", "rejected", "The coordinator is starting.", "It passes by itself."),
    ("COORDINATOR_NOT_AVAILABLE", "temporary", "rejected", "The coordinator is not available.", "It passes by itself; look at the internal topics if it does not."),
    ("NOT_COORDINATOR", "temporary", "rejected", "The coordinator moved.", "It passes by itself."),
    ("INVALID_MSG", "temporary", "rejected", "The message arrived damaged.", "The next transmission usually succeeds; look at the network if it does not."),
    ("FENCED_LEADER_EPOCH", "temporary", "rejected", "The client knew an older leader.", "It passes by itself."),
    ("UNKNOWN_LEADER_EPOCH", "temporary", "rejected", "The client knew a newer leader than the broker.", "It passes by itself."),
    ("UNKNOWN_TOPIC_ID", "temporary", "rejected", "The topic was deleted and made again.", "It passes when the client has fresh metadata."),
    ("INCONSISTENT_TOPIC_ID", "temporary", "rejected", "The topic was deleted and made again.", "It passes when the client has fresh metadata."),
    ("THROTTLING_QUOTA_EXCEEDED", "temporary", "rejected", "The client is over its quota.", "Send slower, or ask for a larger quota."),
    ("PREFERRED_LEADER_NOT_AVAILABLE", "temporary", "rejected", "The preferred leader is not available.", "It passes by itself."),
    ("_INVALID_DIFFERENT_RECORD", "temporary", "rejected", "Another record of the same batch was invalid.", "It is sent again without that record."),
    ("REBOOTSTRAP_REQUIRED", "temporary", "rejected", "The client must ask the bootstrap servers again.", "It passes by itself."),
    ("STALE_CTRL_EPOCH", "temporary", "rejected", "The controller changed.", "It passes by itself."),
    ("NOT_CONTROLLER", "temporary", "rejected", "The controller moved.", "It passes by itself."),
    ("_WAIT_COORD", "temporary", "not_sent", "The client waits for its coordinator.", "It passes by itself."),
    ("_WAIT_CACHE", "temporary", "not_sent", "The client waits for its metadata.", "It passes by itself."),
    ("_RETRY", "temporary", "possibly_persisted", "The client asks for another try.", "It is sent again."),
    ("_IN_PROGRESS", "temporary", "not_sent", "The same operation is running already.", "It passes by itself."),
    ("_PREV_IN_PROGRESS", "temporary", "not_sent", "An earlier operation is still running.", "It passes by itself."),
    ("_RESOLVE", "temporary", "not_sent", "A broker's name has no address.", "Check the host name and DNS."),
    ("_ALL_BROKERS_DOWN", "temporary", "possibly_persisted", "No broker is connected.", "Check the brokers and the network."),
    # nobody knows whether the broker has it
    ("_MSG_TIMED_OUT", "timed_out", "possibly_persisted", "The delivery timeout passed without an acknowledgement.", "Look whether it landed before you send it again; raise delivery_timeout_ms if brokers were only slow."),
    ("_TIMED_OUT", "timed_out", "possibly_persisted", "A request got no answer in time.", "Look whether it landed before you send it again."),
    ("_TIMED_OUT_QUEUE", "timed_out", "possibly_persisted", "The message waited too long in the client's queue.", "Look whether it landed before you send it again; send slower."),
    ("REQUEST_TIMED_OUT", "timed_out", "possibly_persisted", "The broker did not get its replicas' answer in time.", "Look whether it landed before you send it again."),
    ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "timed_out", "possibly_persisted", "The leader wrote the message, but too few replicas did.", "It is on the leader: look whether it landed before you send it again."),
    ("NETWORK_EXCEPTION", "timed_out", "possibly_persisted", "The broker disconnected before it answered.", "Look whether it landed before you send it again."),
    ("_TRANSPORT", "timed_out", "possibly_persisted", "The connection to the broker broke.", "Look whether it landed before you send it again."),
    ("_SSL", "timed_out", "possibly_persisted", "The encrypted connection failed.", "Check the certificates and the broker's name in them."),
    ("_FAIL", "timed_out", "possibly_persisted", "Communication with the broker failed.", "Look whether it landed before you send it again."),
    ("_BAD_MSG", "timed_out", "possibly_persisted", "The broker's answer could not be read.", "Look whether it landed; look for a proxy that damages traffic."),
    ("_PARTIAL", "timed_out", "possibly_persisted", "The broker's answer was cut short.", "Look whether it landed before you send it again."),
    ("_PURGE_QUEUE", "timed_out", "possibly_persisted", "The client was closed or broken while the message waited; it may have been sent before.", "Look whether it landed before you send it again."),
    ("_PURGE_INFLIGHT", "timed_out", "possibly_persisted", "The client was closed or broken while the message was on its way.", "Look whether it landed before you send it again."),
    ("_DESTROY", "timed_out", "possibly_persisted", "The client was closed while the message was on its way.", "Look whether it landed before you send it again."),
    ("_DESTROY_BROKER", "timed_out", "possibly_persisted", "The broker left the cluster while the message was on its way.", "Look whether it landed before you send it again."),
    ("_INTR", "timed_out", "possibly_persisted", "The operation was interrupted.", "Look whether it landed before you send it again."),
    ("UNKNOWN", "timed_out", "possibly_persisted", "The broker met an error that it does not name.", "Look at the broker's log and whether the message landed."),
    ("_ISR_INSUFF", "timed_out", "possibly_persisted", "Too few replicas are in sync.", "Look whether it landed; bring the missing brokers back."),
    # the producer's state on the broker
    ("OUT_OF_ORDER_SEQUENCE_NUMBER", "fatal", "possibly_persisted", "The broker misses earlier messages of this producer: they may be lost.", "Treat it as data loss until proved otherwise: check the acknowledged offsets."),
    ("UNKNOWN_PRODUCER_ID", "fatal", "possibly_persisted", "The broker has forgotten this producer.", "Harmless if retention removed its records; check the low watermark against the last acknowledged offset."),
    ("DUPLICATE_SEQUENCE_NUMBER", "permanent", "possibly_persisted", "The broker has this message already.", "Nothing: it is on the topic."),
    ("INVALID_PRODUCER_EPOCH", "timed_out", "possibly_persisted", "The producer's epoch is out of date.", "Look whether it landed before you send it again."),
    ("PRODUCER_FENCED", "fatal", "possibly_persisted", "A newer producer with this transactional id took over.", "Stop this one; one process owns a transactional id."),
    ("_FENCED", "fatal", "possibly_persisted", "A newer producer with this transactional id took over.", "Stop this one; one process owns a transactional id."),
    ("_FATAL", "fatal", "possibly_persisted", "The client is broken and must be made anew.", "This is done for you; the first error says why."),
    ("_GAPLESS_GUARANTEE", "fatal", "possibly_persisted", "A gap could not be avoided.", "Leave enable.gapless.guarantee off; ordering='strict' keeps order."),
    ("_INCONSISTENT", "fatal", "possibly_persisted", "The broker's answers contradict each other.", "Look whether it landed; report this with the log."),
    ("_CRIT_SYS_RESOURCE", "fatal", "possibly_persisted", "The process ran out of memory, threads or files.", "Free memory or raise the limits."),
    # transactions
    ("INVALID_TRANSACTION_TIMEOUT", "fatal", "rejected", "The transaction timeout is longer than the broker allows.", "Lower transaction.timeout.ms, or raise the broker's transaction.max.timeout.ms."),
    ("INVALID_TXN_STATE", "timed_out", "possibly_persisted", "The transaction is not in the state the client believes.", "The transaction is aborted and its records are read back."),
    ("INVALID_PRODUCER_ID_MAPPING", "timed_out", "possibly_persisted", "The broker does not know this transactional producer any more.", "The transaction is aborted and its records are read back."),
    ("CONCURRENT_TRANSACTIONS", "temporary", "possibly_persisted", "The previous transaction is still being finished.", "It passes by itself."),
    ("TRANSACTION_ABORTABLE", "timed_out", "possibly_persisted", "The transaction must be aborted.", "It is aborted and its records are read back."),
    ("TRANSACTION_COORDINATOR_FENCED", "temporary", "possibly_persisted", "The transaction coordinator moved.", "It passes by itself."),
    # local trouble while an answer was read
    ("_BAD_COMPRESSION", "timed_out", "possibly_persisted", "Compressed data could not be read.", "Look whether it landed; check the client's codecs."),
    ("_FS", "permanent", "possibly_persisted", "The client cannot use a file.", "Check the disk and the permissions."),
    ("_OUTDATED", "temporary", "possibly_persisted", "The client's knowledge was out of date.", "It passes by itself."),
    ("_APPLICATION", "permanent", "possibly_persisted", "The application raised an error.", "See the error's text."),
    ("_NODE_UPDATE", "temporary", "possibly_persisted", "A broker's address changed.", "It passes by itself."),
    ("_UNKNOWN_BROKER", "temporary", "possibly_persisted", "The client does not know this broker yet.", "It passes by itself."),
    ("_UNKNOWN_PROTOCOL", "permanent", "possibly_persisted", "The protocol is not known.", "Check security_protocol against the broker's listener."),
)  # fmt: skip

ELSEWHERE = (
    "_PARTITION_EOF _UNKNOWN_GROUP _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _NO_OFFSET "
    "_KEY_DESERIALIZATION _VALUE_DESERIALIZATION _NOENT _UNDERFLOW _INVALID_TYPE _MAX_POLL_EXCEEDED "
    "_ASSIGNMENT_LOST _NOOP _AUTO_OFFSET_RESET _LOG_TRUNCATION OFFSET_OUT_OF_RANGE OFFSET_METADATA_TOO_LARGE "
    "ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT "
    "REBALANCE_IN_PROGRESS INVALID_COMMIT_OFFSET_SIZE GROUP_AUTHORIZATION_FAILED TOPIC_ALREADY_EXISTS "
    "INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT OPERATION_NOT_ATTEMPTED "
    "LOG_DIR_NOT_FOUND REASSIGNMENT_IN_PROGRESS DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND "
    "DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
    "DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP GROUP_ID_NOT_FOUND "
    "FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH LISTENER_NOT_FOUND TOPIC_DELETION_DISABLED "
    "STALE_BROKER_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID "
    "ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC "
    "UNSTABLE_OFFSET_COMMIT RESOURCE_NOT_FOUND DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL "
    "INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED PRINCIPAL_DESERIALIZATION_FAILURE "
    "FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH MISMATCHED_ENDPOINT_TYPE "
    "UNSUPPORTED_ENDPOINT_TYPE UNKNOWN_CONTROLLER_ID UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE "
    "INVALID_REGISTRATION INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND INVALID_SHARE_SESSION_EPOCH "
    "FENCED_STATE_EPOCH INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND INVALID_REGULAR_EXPRESSION "
    "STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED SHARE_SESSION_LIMIT_REACHED"
).split()
"""Answers to consumers, administrators and other brokers: a producer should never see one."""

ALIASES = {
    # Apache Kafka's protocol names that differ from librdkafka's
    "CORRUPT_MESSAGE": "INVALID_MSG",
    "MESSAGE_TOO_LARGE": "MSG_SIZE_TOO_LARGE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_SERVER_ERROR": "UNKNOWN",
    "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN_TOPIC_OR_PART",
    "INVALID_TOPIC_EXCEPTION": "TOPIC_EXCEPTION",
    "INVALID_FETCH_SIZE": "INVALID_MSG_SIZE",
    # kafka-python's and Java's class names, without their suffix Error or Exception
    "KafkaTimeout": "_MSG_TIMED_OUT",
    "Timeout": "_MSG_TIMED_OUT",
    "RequestTimedOut": "REQUEST_TIMED_OUT",
    "NotLeaderForPartition": "NOT_LEADER_FOR_PARTITION",
    "NotLeaderOrFollower": "NOT_LEADER_FOR_PARTITION",
    "LeaderNotAvailable": "LEADER_NOT_AVAILABLE",
    "BrokerNotAvailable": "BROKER_NOT_AVAILABLE",
    "ReplicaNotAvailable": "REPLICA_NOT_AVAILABLE",
    "MessageSizeTooLarge": "MSG_SIZE_TOO_LARGE",
    "RecordTooLarge": "MSG_SIZE_TOO_LARGE",
    "RecordListTooLarge": "RECORD_LIST_TOO_LARGE",
    "RecordBatchTooLarge": "RECORD_LIST_TOO_LARGE",
    "CorruptRecord": "INVALID_MSG",
    "CorruptRecordException": "INVALID_MSG",
    "UnknownTopicOrPartition": "UNKNOWN_TOPIC_OR_PART",
    "InvalidTopic": "TOPIC_EXCEPTION",
    "TopicAuthorizationFailed": "TOPIC_AUTHORIZATION_FAILED",
    "TopicAuthorization": "TOPIC_AUTHORIZATION_FAILED",
    "ClusterAuthorizationFailed": "CLUSTER_AUTHORIZATION_FAILED",
    "ClusterAuthorization": "CLUSTER_AUTHORIZATION_FAILED",
    "TransactionalIdAuthorizationFailed": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SaslAuthenticationFailed": "SASL_AUTHENTICATION_FAILED",
    "SaslAuthentication": "SASL_AUTHENTICATION_FAILED",
    "AuthenticationFailed": "SASL_AUTHENTICATION_FAILED",
    "NotEnoughReplicas": "NOT_ENOUGH_REPLICAS",
    "NotEnoughReplicasAfterAppend": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "InvalidRequiredAcks": "INVALID_REQUIRED_ACKS",
    "InvalidTimestamp": "INVALID_TIMESTAMP",
    "InvalidRecord": "INVALID_RECORD",
    "PolicyViolation": "POLICY_VIOLATION",
    "UnsupportedForMessageFormat": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "UnsupportedVersion": "UNSUPPORTED_VERSION",
    "UnsupportedCompressionType": "UNSUPPORTED_COMPRESSION_TYPE",
    "OutOfOrderSequenceNumber": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "OutOfOrderSequence": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DuplicateSequenceNumber": "DUPLICATE_SEQUENCE_NUMBER",
    "DuplicateSequence": "DUPLICATE_SEQUENCE_NUMBER",
    "UnknownProducerId": "UNKNOWN_PRODUCER_ID",
    "InvalidProducerEpoch": "INVALID_PRODUCER_EPOCH",
    "ProducerFenced": "PRODUCER_FENCED",
    "InvalidTxnState": "INVALID_TXN_STATE",
    "InvalidProducerIdMapping": "INVALID_PRODUCER_ID_MAPPING",
    "InvalidTransactionTimeout": "INVALID_TRANSACTION_TIMEOUT",
    "ConcurrentTransactions": "CONCURRENT_TRANSACTIONS",
    "TransactionAbortable": "TRANSACTION_ABORTABLE",
    "KafkaStorage": "KAFKA_STORAGE_ERROR",
    "KafkaConnection": "_TRANSPORT",
    "NodeNotReady": "_TRANSPORT",
    "Network": "NETWORK_EXCEPTION",
    "NetworkException": "NETWORK_EXCEPTION",
    "Disconnect": "_TRANSPORT",
    "NoBrokersAvailable": "_ALL_BROKERS_DOWN",
    "BufferExhausted": "_QUEUE_FULL",
    "UnknownServer": "UNKNOWN",
    "UnknownError": "UNKNOWN",
    "Serialization": "_VALUE_SERIALIZATION",
}
