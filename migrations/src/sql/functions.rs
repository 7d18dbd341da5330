//! `firehose_append` and `firehose_broadcast`: publishing from any language, in the caller's transaction.

/// `firehose_store` does the work of both, and says whether it stored anything.
///
/// The row is locked before the key is looked up, and in a statement of its own: the second one's snapshot then has
/// whatever the one before us stored. Nothing after the sequence moved can be skipped, so there is never a hole.
pub(crate) const UP: &str = r#"
CREATE FUNCTION {s}.firehose_store(
  stream text, data text, key text,
  OUT id bigint, OUT channel_id bigint, OUT sequence bigint, OUT created_at timestamp without time zone, OUT stored boolean
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $firehose$
#variable_conflict use_column
DECLARE
  now_utc timestamp without time zone := clock_timestamp() AT TIME ZONE 'utc';
BEGIN
  IF stream IS NULL OR octet_length(stream) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION 'stream name of % bytes: 1 to 1024 are allowed', coalesce(octet_length(stream), 0)
      USING ERRCODE = 'invalid_parameter_value';
  ELSIF data IS NULL THEN
    RAISE EXCEPTION 'data must not be null' USING ERRCODE = 'null_value_not_allowed';
  ELSIF key IS NOT NULL AND octet_length(key) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'key of % bytes: 1 to 255 are allowed', octet_length(key)
      USING ERRCODE = 'invalid_parameter_value';
  END IF;

  FOR attempt IN 1 .. 10 LOOP
    SELECT ch.id INTO channel_id FROM {s}.firehose_channels ch
    WHERE ch.name = firehose_store.stream FOR NO KEY UPDATE;
    EXIT WHEN FOUND;
    INSERT INTO {s}.firehose_channels (name, created_at, updated_at)
    VALUES (firehose_store.stream, now_utc, now_utc) ON CONFLICT (name) DO NOTHING;
  END LOOP;
  IF channel_id IS NULL THEN
    RAISE EXCEPTION 'the stream is created and deleted again and again' USING ERRCODE = 'serialization_failure';
  END IF;

  IF key IS NOT NULL THEN
    SELECT m.id, m.sequence, m.created_at INTO id, sequence, created_at FROM {s}.firehose_messages m
    WHERE m.channel_id = firehose_store.channel_id AND m.key = firehose_store.key;
    IF FOUND THEN
      stored := false;
      RETURN;
    END IF;
  END IF;

  UPDATE {s}.firehose_channels ch
  SET sequence = ch.sequence + 1, messages_count = least(ch.messages_count::bigint + 1, 2147483647)
  WHERE ch.id = firehose_store.channel_id RETURNING ch.sequence INTO sequence;
  INSERT INTO {s}.firehose_messages AS m (channel_id, sequence, data, key, created_at)
  VALUES (firehose_store.channel_id, firehose_store.sequence, firehose_store.data, firehose_store.key,
          clock_timestamp() AT TIME ZONE 'utc')
  RETURNING m.id, m.created_at INTO id, created_at;
  stored := true;
END
$firehose$;

CREATE FUNCTION {s}.firehose_append(stream text, data text, key text DEFAULT NULL)
RETURNS TABLE (id bigint, channel_id bigint, sequence bigint) LANGUAGE sql AS $firehose$
  SELECT new.id, new.channel_id, new.sequence FROM {s}.firehose_store($1, $2, $3) AS new
$firehose$;

CREATE FUNCTION {s}.firehose_broadcast(stream text, data text, key text DEFAULT NULL)
RETURNS TABLE (id bigint, channel_id bigint, sequence bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $firehose$
#variable_conflict use_column
DECLARE
  new record;
  agreed record;
  name text;
  hash bigint;
  head text;
  tail text;
  payload text;
BEGIN
  SELECT * INTO new FROM {s}.firehose_store(firehose_broadcast.stream, firehose_broadcast.data, firehose_broadcast.key);
  id := new.id;
  channel_id := new.channel_id;
  sequence := new.sequence;
  RETURN NEXT;
  -- What is not announced here, the sweep of every listening process finds.
  IF NOT new.stored OR coalesce(current_setting('firehose.announce', true), '') = 'off'
     OR pg_notification_queue_usage() > 0.5 THEN
    RETURN;
  END IF;

  SELECT s.layout, s.buckets, s.prefix INTO agreed FROM {s}.firehose_settings s;
  IF agreed.layout = 'buckets' THEN
    hash := ('x' || encode(substring(sha256(convert_to(stream, 'UTF8')) FOR 8), 'hex'))::bit(64)::bigint;
    -- the hash counts as unsigned
    name := agreed.prefix || '-bucket:'
      || mod(hash::numeric + CASE WHEN hash < 0 THEN 18446744073709551616 ELSE 0 END, agreed.buckets);
  ELSE
    name := agreed.prefix || ':' || stream;
  END IF;

  head := '{"id":' || new.id || ',"channel_id":' || new.channel_id || ',"sequence":' || new.sequence
    || ',"stream":' || to_json(stream)::text;
  tail := ',"at":' || (extract(epoch FROM new.created_at) * 1000000)::bigint || '}';
  payload := head || ',"data":' || to_json(data)::text || tail;
  IF octet_length(payload) > 7999 THEN
    payload := head || tail;
  END IF;
  PERFORM pg_notify(left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 63), payload);
END
$firehose$;
"#;

pub(crate) const DOWN: &str = "
DROP FUNCTION {s}.firehose_broadcast(text, text, text);
DROP FUNCTION {s}.firehose_append(text, text, text);
DROP FUNCTION {s}.firehose_store(text, text, text);
";
