"""The client that producer, consumer, admin and spout share: requests sent, futures given."""
