"""Other names of error codes: what Apache Kafka's protocol, kafka-python and Java call librdkafka's codes.

Used by `explain` and by `RetryConfig.retriable_errors`. Only names whose spelling does not lead to the code need an
entry (see `classify.lookup`): `NotEnoughReplicasError` finds NOT_ENOUGH_REPLICAS without one.
"""

from __future__ import annotations

ALIASES = {
    "UnknownProducerException": "UNKNOWN_PRODUCER_ID",  # the name in the design documents
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
    "NotLeaderOrFollower": "NOT_LEADER_FOR_PARTITION",
    "MessageSizeTooLarge": "MSG_SIZE_TOO_LARGE",
    "RecordTooLarge": "MSG_SIZE_TOO_LARGE",
    "RecordBatchTooLarge": "RECORD_LIST_TOO_LARGE",
    "CorruptRecord": "INVALID_MSG",
    "UnknownTopicOrPartition": "UNKNOWN_TOPIC_OR_PART",
    "InvalidTopic": "TOPIC_EXCEPTION",
    "TopicAuthorization": "TOPIC_AUTHORIZATION_FAILED",
    "ClusterAuthorization": "CLUSTER_AUTHORIZATION_FAILED",
    "SaslAuthentication": "SASL_AUTHENTICATION_FAILED",
    "AuthenticationFailed": "SASL_AUTHENTICATION_FAILED",
    "OutOfOrderSequence": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DuplicateSequence": "DUPLICATE_SEQUENCE_NUMBER",
    "KafkaStorage": "KAFKA_STORAGE_ERROR",
    "KafkaConnection": "_TRANSPORT",
    "NodeNotReady": "_TRANSPORT",
    "Network": "NETWORK_EXCEPTION",
    "NetworkException": "NETWORK_EXCEPTION",
    "Disconnect": "_TRANSPORT",
    "NoBrokersAvailable": "_ALL_BROKERS_DOWN",
    "BufferExhausted": "_QUEUE_FULL",
    "BufferError": "_QUEUE_FULL",  # raised by confluent_kafka's produce()
    "UnknownServer": "UNKNOWN",
    "Serialization": "_VALUE_SERIALIZATION",
    # other class names of kafka-python and Java, including those of errors without a code in the protocol
    "AsyncProducerQueueFull": "_QUEUE_FULL",
    "Authentication": "SASL_AUTHENTICATION_FAILED",
    "AuthenticationMethodNotSupported": "UNSUPPORTED_SASL_MECHANISM",
    "AuthorizerNotReady": "BROKER_NOT_AVAILABLE",
    "Cancelled": "_TRANSPORT",
    "CommitFailed": "ILLEGAL_GENERATION",
    "ControllerMoved": "STALE_CTRL_EPOCH",
    "CorrelationId": "_BAD_MSG",
    "DelegationTokenAuthorization": "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "DelegationTokenDisabled": "DELEGATION_TOKEN_AUTH_DISABLED",
    "FailedPayloads": "_TRANSPORT",
    "FetchSessionTopicId": "FETCH_SESSION_TOPIC_ID_ERROR",
    "GroupAuthorization": "GROUP_AUTHORIZATION_FAILED",
    "GroupCoordinatorNotAvailable": "COORDINATOR_NOT_AVAILABLE",
    "GroupLoadInProgress": "COORDINATOR_LOAD_IN_PROGRESS",
    "GroupNotEmpty": "NON_EMPTY_GROUP",
    "IllegalArgument": "_INVALID_ARG",
    "IllegalState": "_STATE",
    "IncompatibleBrokerVersion": "UNSUPPORTED_VERSION",
    "Interrupt": "_INTR",
    "InvalidConfiguration": "INVALID_CONFIG",
    "InvalidFetchRequest": "INVALID_MSG_SIZE",
    "InvalidMessage": "INVALID_MSG",
    "InvalidOffset": "OFFSET_OUT_OF_RANGE",
    "InvalidPidMapping": "INVALID_PRODUCER_ID_MAPPING",
    "InvalidReceive": "_BAD_MSG",
    "InvalidReplicationAssignment": "INVALID_REPLICA_ASSIGNMENT",
    "InvalidTxnTimeout": "INVALID_TRANSACTION_TIMEOUT",
    "KafkaConfiguration": "_INVALID_ARG",
    "KafkaProtocol": "_BAD_MSG",
    "KafkaUnavailable": "_ALL_BROKERS_DOWN",
    "LogTruncation": "_LOG_TRUNCATION",
    "MetadataEmptyBrokerList": "_ALL_BROKERS_DOWN",
    "NoOffsetForPartition": "_NO_OFFSET",
    "NotCoordinatorForGroup": "NOT_COORDINATOR",
    "PrincipalDeserialization": "PRINCIPAL_DESERIALIZATION_FAILURE",
    "QuotaViolation": "THROTTLING_QUOTA_EXCEEDED",
    "RecordDeserialization": "_VALUE_DESERIALIZATION",
    "SslAuthentication": "_SSL",
    "STALE_CONTROLLER_EPOCH": "STALE_CTRL_EPOCH",
    "StaleLeaderEpochCode": "NETWORK_EXCEPTION",  # the former name of error 13 in the protocol
    "StaleMetadata": "_OUTDATED",
    "TooManyInFlightRequests": "_PREV_IN_PROGRESS",
    "TopicExists": "TOPIC_ALREADY_EXISTS",
    "TransactionAborted": "TRANSACTION_ABORTABLE",
    "TransactionalIdAuthorization": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UnknownBrokerId": "_UNKNOWN_BROKER",
    "UnrecognizedBrokerVersion": "UNSUPPORTED_VERSION",
    "UnsupportedByAuthentication": "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "UnsupportedCodec": "UNSUPPORTED_COMPRESSION_TYPE",
    "Wakeup": "_INTR",
}

PARENTS = (
    "KafkaError",
    "BrokerResponseError",
    "ProtocolError",
    "RetriableError",
    "InvalidMetadataError",
    "AuthorizationError",
    "KafkaException",
    "ApiException",
    "RefreshRetriableException",
    "ApplicationRecoverableException",
)
"""Base classes only. The specific error class, its number or its text identifies the error."""

NO_ERROR = ("NONE", "NO_ERROR", "NoError")
