package client_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgworkq/workq/client"
)

type Email struct{ To, Subject string }

func send(context.Context, Email) error { return nil }

// A worker that sends emails until it is told to stop.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "") // PGHOST, PGUSER, …
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	wq := client.New(pool, client.Options{Logger: slog.Default()})

	if _, err := wq.CreateQueue(ctx, "emails", client.QueueSettings{MaxAttempts: new(10)}); err != nil {
		log.Fatal(err)
	}
	var mux client.Mux
	client.HandleKind(&mux, "email.send", func(ctx context.Context, m *client.Message, e Email) error {
		return send(ctx, e)
	})
	if _, err := wq.Enqueue(ctx, "emails", Email{To: "ada@example.com"}, &client.EnqueueOptions{Kind: "email.send"}); err != nil {
		log.Fatal(err)
	}
	if err := wq.NewWorker("emails", &mux, client.WorkerOptions{Concurrency: 20}).Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// The message exists exactly when the order does.
func ExampleClient_With() {
	var ctx context.Context
	var pool *pgxpool.Pool
	wq := client.New(pool, client.Options{})

	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (customer) values ($1)", "ada"); err != nil {
			return err
		}
		_, err := wq.With(tx).Enqueue(ctx, "emails", Email{To: "ada@example.com"}, nil)
		return err
	})
	if errors.Is(err, client.ErrQueueFull) {
		log.Print("try again later")
	}
}

// The handler's own change and the ack commit together: the effect happens exactly once.
func ExampleMessage_AckTx() {
	var pool *pgxpool.Pool

	_ = client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update account set balance = balance - 1"); err != nil {
				return err
			}
			return m.AckTx(ctx, tx, nil)
		})
	})
}

// Errors steer what becomes of the message.
func ExampleHandler() {
	errBusy, errMalformed := errors.New("busy"), errors.New("malformed")

	_ = client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		var e Email
		if err := m.Decode(&e); err != nil {
			return client.Permanent(err) // a dead letter at once
		}
		switch err := send(ctx, e); {
		case errors.Is(err, errBusy):
			return client.RetryAfter(time.Minute, err)
		case errors.Is(err, errMalformed):
			return client.Permanent(err)
		case err != nil:
			return err // retried as the queue's retry_delays say
		}
		return m.SetResult(map[string]any{"sent_at": time.Now()})
	})
}

// Without a Worker: receive, work, settle.
func ExampleClient_Receive() {
	var ctx context.Context
	var wq *client.Client

	messages, err := wq.Receive(ctx, "emails", &client.ReceiveOptions{MaxMessages: 10, Visibility: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	outcomes, err := wq.AckMany(ctx, "emails", messages, nil)
	if err != nil {
		log.Fatal(err)
	}
	for i, o := range outcomes {
		if o.Lost() {
			log.Printf("message %d was delivered again", messages[i].ID)
		}
	}
}
