CREATE TABLE tenants (
    name    text PRIMARY KEY,
    running bigint,
    waiting bigint,
    served  bigint NOT NULL DEFAULT 0
);
CREATE SEQUENCE served;
CREATE TABLE posts (
    worker   bigint PRIMARY KEY REFERENCES procrastinate_workers (id) ON DELETE CASCADE,
    name     text NOT NULL,
    owner    text NOT NULL,
    slots    bigint NOT NULL,
    lease_s  double precision NOT NULL,
    draining boolean NOT NULL DEFAULT false
);
CREATE TABLE ends (
    job     bigint PRIMARY KEY REFERENCES procrastinate_jobs (id) ON DELETE CASCADE,
    ended   double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    outcome text NOT NULL
);
CREATE TABLE starts (
    job       bigint PRIMARY KEY REFERENCES procrastinate_jobs (id) ON DELETE CASCADE,
    submitted double precision NOT NULL DEFAULT extract(epoch FROM clock_timestamp()),
    deaths    bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX turn_ids ON procrastinate_jobs ((args ->> 'id'));
CREATE UNIQUE INDEX turn_keys ON procrastinate_jobs (queue_name, (args ->> 'key'))
    WHERE args ->> 'key' IS NOT NULL;
CREATE INDEX turns_waiting ON procrastinate_jobs (queue_name) WHERE status = 'todo';
CREATE INDEX turns_running ON procrastinate_jobs (queue_name) WHERE status = 'doing';

-- The id of the job, or how many wait where that is too many.
CREATE FUNCTION submit_turn(
    p_job jsonb, p_tenant text, p_session text, p_priority int, p_most bigint,
    OUT job text, OUT waits bigint, OUT most bigint
) LANGUAGE plpgsql AS $$
DECLARE made bigint[];
BEGIN
    INSERT INTO tenants (name) VALUES (p_tenant) ON CONFLICT DO NOTHING;
    SELECT coalesce(t.waiting, p_most) INTO most FROM tenants t WHERE name = p_tenant FOR UPDATE;
    SELECT args ->> 'id' INTO job FROM procrastinate_jobs
        WHERE queue_name = p_tenant AND args ->> 'key' = p_job ->> 'key';
    IF job IS NOT NULL THEN RETURN; END IF;
    SELECT count(*) INTO waits FROM procrastinate_jobs
        WHERE queue_name = p_tenant AND status = 'todo';
    IF waits >= most THEN RETURN; END IF;
    made := procrastinate_defer_jobs_v1(ARRAY[ROW(
        p_tenant, 'turn', p_priority, p_session, NULL, p_job, NULL
    )::procrastinate_job_to_defer_v1]);
    INSERT INTO starts (job) VALUES (made[1]);
    job := p_job ->> 'id';
END;
$$;

-- The next job: of the tenant with the fewest running, then of the one served longest ago.
-- One statement, so that a worker that is suspended in it leaves no lock behind.
CREATE FUNCTION take_turn(p_worker bigint, p_most bigint) RETURNS SETOF procrastinate_jobs
LANGUAGE plpgsql AS $$
DECLARE one record; found procrastinate_jobs;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('ullage_jobs.take'));
    FOR one IN
        SELECT t.name FROM tenants t CROSS JOIN LATERAL (
            SELECT count(*) AS running FROM procrastinate_jobs j
            WHERE j.queue_name = t.name AND j.status = 'doing'
        ) AS busy
        WHERE busy.running < coalesce(t.running, p_most) AND EXISTS (
            SELECT FROM procrastinate_jobs j WHERE j.queue_name = t.name AND j.status = 'todo'
        )
        ORDER BY busy.running, t.served, t.name
    LOOP
        found := procrastinate_fetch_job_v2(ARRAY[one.name]::varchar[], p_worker);
        IF found.id IS NOT NULL THEN
            UPDATE tenants SET served = nextval('served') WHERE name = one.name;
            RETURN NEXT found;
            RETURN;
        END IF;
    END LOOP;
END;
$$;

CREATE FUNCTION end_turn(p_id bigint, p_status text, p_outcome text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ends (job, outcome) VALUES (p_id, p_outcome);
    PERFORM procrastinate_finish_job_v1(p_id, p_status::procrastinate_job_status, false);
    PERFORM pg_notify('ullage_jobs', json_build_object('job', args ->> 'id', 'type', 'ended')::text)
        FROM procrastinate_jobs WHERE id = p_id;
END;
$$;

CREATE FUNCTION give_back(p_id bigint, p_deaths bigint, p_cancelled jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT abort_requested FROM procrastinate_jobs WHERE id = p_id) THEN
        PERFORM end_turn(p_id, 'aborted',
            (SELECT (p_cancelled || jsonb_build_object('session', lock))::text
             FROM procrastinate_jobs WHERE id = p_id));
        RETURN;
    END IF;
    UPDATE procrastinate_jobs SET status = 'todo', worker_id = NULL, attempts = attempts + 1
        WHERE id = p_id;
    UPDATE starts SET deaths = deaths + p_deaths WHERE job = p_id;
    PERFORM pg_notify('ullage_jobs', '{"type": "waits"}');
END;
$$;

-- Whether the job was still this worker's.
CREATE FUNCTION settle_turn(
    p_id bigint, p_worker bigint, p_attempt int, p_status text, p_outcome text, p_cancelled jsonb
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM procrastinate_jobs WHERE id = p_id AND status = 'doing'
        AND worker_id = p_worker AND attempts = p_attempt FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    IF p_status IS NULL THEN
        PERFORM give_back(p_id, 0, p_cancelled);
    ELSE
        PERFORM end_turn(p_id, p_status, p_outcome);
    END IF;
    RETURN true;
END;
$$;

-- Forgets the named workers and those that were silent too long; gives back what they ran.
CREATE FUNCTION forget_workers(p_workers bigint[], p_deaths bigint, p_cancelled jsonb)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE one bigint; given bigint := 0;
BEGIN
    FOR one IN
        SELECT j.id FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
        LEFT JOIN posts p ON p.worker = w.id
        WHERE j.status = 'doing' AND (j.worker_id IS NULL OR j.worker_id = ANY (p_workers)
            OR w.last_heartbeat < clock_timestamp() - p.lease_s * interval '1 second')
        FOR UPDATE OF j SKIP LOCKED
    LOOP
        PERFORM give_back(one, p_deaths, p_cancelled);
        given := given + 1;
    END LOOP;
    DELETE FROM procrastinate_workers w USING posts p WHERE p.worker = w.id
        AND NOT EXISTS (SELECT FROM procrastinate_jobs j WHERE j.worker_id = w.id AND j.status = 'doing')
        AND (w.id = ANY (p_workers)
             OR w.last_heartbeat < clock_timestamp() - p.lease_s * interval '1 second');
    RETURN given;
END;
$$;

CREATE FUNCTION cancel_turn(p_job text, p_cancelled jsonb) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE one procrastinate_jobs;
BEGIN
    SELECT * INTO one FROM procrastinate_jobs
        WHERE args ->> 'id' = p_job AND status IN ('todo', 'doing') FOR UPDATE;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM procrastinate_cancel_job_v1(one.id, true, false);
    IF one.status = 'todo' THEN
        INSERT INTO ends (job, outcome)
            VALUES (one.id, (p_cancelled || jsonb_build_object('session', one.lock))::text);
    END IF;
    PERFORM pg_notify('ullage_jobs', json_build_object('job', p_job, 'type', 'cancelled')::text);
    RETURN true;
END;
$$;

CREATE FUNCTION enlist_worker(p_name text, p_owner text, p_slots bigint, p_lease double precision)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE made bigint;
BEGIN
    SELECT worker_id INTO made FROM procrastinate_register_worker_v1();
    INSERT INTO posts (worker, name, owner, slots, lease_s)
        VALUES (made, p_name, p_owner, p_slots, p_lease);
    RETURN made;
END;
$$;

-- Whether the worker is known still.
CREATE FUNCTION beat_worker(p_worker bigint, p_draining boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE posts SET draining = p_draining WHERE worker = p_worker AND draining <> p_draining;
    UPDATE procrastinate_workers SET last_heartbeat = clock_timestamp() WHERE id = p_worker;
    RETURN FOUND;
END;
$$;
