package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
	"github.com/postrider/postrider/internal/platform/promote"
)

func promoteCommand() command {
	return command{use: "promote", group: groupSafety, source: ofNode,
		short: "move an SQLite installation to PostgreSQL",
		long: "Moves an installation from SQLite to PostgreSQL while its node keeps working, and with --blob-to also " +
			"its blobs. The password of --to may be in the variable PGPASSWORD or in ~/.pgpass, or the whole URL in " +
			"POSTRIDER_PROMOTE_TO, so that other users of the machine do not see it among the arguments.",
		example: "postrider promote --to postgres://postrider@db.example.com/postrider\npostrider promote --cancel",
		define: func(flags *pflag.FlagSet) runner {
			to := flags.String("to", "", "`URL` of the new database, which must be empty: postgres://... without a pooler")
			blobTo := flags.String("blob-to", "", "new `place` of the blobs, such as s3://...; empty: they stay in blob_url")
			stop := flags.Bool("cancel", false, "end a move that is not complete; the installation stays where it is")
			return withSettings(func(ctx context.Context, e *env, c config.Config, _ []string) error {
				return promoteInstallation(ctx, e, c, cmp.Or(*to, e.getenv("POSTRIDER_PROMOTE_TO")), *blobTo, *stop)
			})
		}}
}

// partitionsBack is for how long ago promote makes partitions. Older rows go to the default partition first.
const partitionsBack = 400 * 24 * time.Hour

// promoteInstallation moves an SQLite installation to PostgreSQL, while its node keeps working.
func promoteInstallation(ctx context.Context, e *env, c config.Config, url, blobTo string, stop bool) error {
	switch {
	case c.DatabaseURL != "":
		return errors.New("database_url: this command moves an installation from SQLite, so it needs the settings of that " +
			"installation, with an empty database_url")
	case !stop && !db.IsPostgres(url):
		return usageError("--to must be the URL of a PostgreSQL database, such as postgres://user@host/name")
	}
	if err := findDatabase(c); err != nil {
		return err
	}
	lock, err := node.LockMove(c)
	if err != nil {
		return err
	}
	defer lock.Close()
	log := newLogger(c, e.errOut)
	source, err := openDB(ctx, c, log)
	if err != nil {
		return err
	}
	defer source.Close()
	if stop {
		if err := promote.Cancel(ctx, source); err != nil {
			return err
		}
		return e.done(struct {
			Canceled bool `json:"canceled"`
		}{true}, "the move is canceled; the new database can be dropped")
	}
	// The node and this program must agree on the tables, and the new installation needs the same secret key.
	if err := source.CheckProgram(ctx); err != nil {
		return err
	}
	if _, err := node.OpenKeyring(ctx, source, c, false, log); err != nil {
		return err
	}
	return moveTo(ctx, e, c, source, url, blobTo)
}

// moveTo moves the installation whose database is source to the database with the given URL.
func moveTo(ctx context.Context, e *env, c config.Config, source *db.DB, url, blobTo string) error {
	log := newLogger(c, e.errOut)
	target, err := db.Open(ctx, db.Options{URL: url, Setting: "--to", Log: log})
	if err != nil {
		return err
	}
	defer target.Close()
	next := c
	next.DatabaseURL = config.Secret(url)
	o := promote.Options{Source: source, Path: node.DatabaseURL(c), Target: target, URL: url,
		Place: strings.TrimPrefix(node.Place(next), "database_url, which leads to "),
		Partitions: func(ctx context.Context, since time.Time) error {
			if oldest := time.Now().Add(-partitionsBack); since.Before(oldest) {
				since = oldest
			}
			return partitions.New(target, partitions.Length(c.PartitionBy), log).MakeSince(ctx, since)
		},
		Pause: func(ctx context.Context) (func(), error) {
			e.note("pausing the node for the last changes")
			return node.PauseNode(ctx, c, source)
		},
		Say: e.note}
	if blobTo != "" {
		if o.Blobs, err = blob.Open(ctx, c.BlobURL); err != nil {
			return fmt.Errorf("open blob_url: %w", err)
		}
		defer o.Blobs.Close()
		if o.NewBlobs, err = blob.Open(ctx, blobTo); err != nil {
			return fmt.Errorf("--blob-to: %w", err)
		}
		defer o.NewBlobs.Close()
	}
	r, err := promote.Run(ctx, o)
	if err != nil {
		return err
	}
	if e.json {
		return encode(e.out, struct {
			Place        string  `json:"place"`
			BlobURL      string  `json:"blob_url"`
			Rows         int64   `json:"rows"`
			Tables       int     `json:"tables"`
			LastChanges  int     `json:"last_changes"`
			Blobs        int     `json:"blobs"`
			PauseSeconds float64 `json:"pause_seconds"`
		}{o.Place, withoutQuery(cmp.Or(blobTo, c.BlobURL)), r.Rows, r.Tables, r.LastChanges, r.Blobs,
			r.Paused.Seconds()})
	}
	fmt.Fprintf(e.out, "the installation is moved to %s: %d rows of %d tables were compared, and %d changed rows and %d "+
		"blobs were copied; the pause took %.1f s\nSet database_url to it", o.Place, r.Rows, r.Tables, r.LastChanges, r.Blobs,
		r.Paused.Seconds())
	if blobTo != "" {
		fmt.Fprintf(e.out, " and blob_url to %s", blobTo)
	} else if !strings.Contains(c.BlobURL, "://") {
		fmt.Fprintf(e.out, ", keep the blobs in %s", c.BlobURL)
	}
	fmt.Fprintln(e.out, ", keep the secret key, and restart the node. It does not start with the old settings any more.")
	return nil
}
