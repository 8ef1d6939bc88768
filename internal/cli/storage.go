package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// showStorage prints the sizes of all tables. On PostgreSQL, showStorage also prints the partitions, and which of them
// is dropped next.
func showStorage(ctx context.Context, e *env, args []string) error {
	flags := flag.NewFlagSet("storage", flag.ContinueOnError)
	c, err := e.load(flags, args, config.Source{})
	if err != nil {
		return err
	}
	n, err := openBeside(ctx, c, e)
	if err != nil {
		return err
	}
	defer n.Close()
	sizes, err := n.DB.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "table\tsize")
	for _, table := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(w, "%s\t%s\n", table, inBytes(sizes[table]))
	}
	if err := w.Flush(); err != nil || n.DB.Alone() {
		return err
	}
	return showPartitions(ctx, e, n)
}

func showPartitions(ctx context.Context, e *env, n *node.Node) error {
	all, err := n.Partitions().List(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\npartition\tids from (UTC)\tto\trows, about\tsize")
	for _, p := range all {
		from, to := "default", ""
		if !p.Default {
			from, to = p.From.UTC().Format(time.DateTime), p.To.UTC().Format(time.DateTime)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", p.Name, from, to, p.Rows, inBytes(p.Bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(e.out)
	for _, p := range all {
		if p.Default && p.Rows > 0 {
			fmt.Fprintf(e.out, "The default partition %s has rows: those with ids of an unusual time, those kept from a "+
				"dropped "+
				"partition, and those whose partition is missing. A job moves the last ones within 15 minutes.\n", p.Name)
		}
	}
	for _, f := range partitions.Families {
		missing, err := n.Partitions().Ahead(ctx, f)
		if err != nil {
			return err
		}
		for _, span := range missing {
			fmt.Fprintf(e.out, "MISSING: the partitions of %s of %s. The node's log says why they cannot be made.\n", f.Name,
				span)
		}
	}
	for _, d := range n.Retention(n.DB.Now).Drops() {
		if err := showNextDrop(ctx, e, n, d); err != nil {
			return err
		}
	}
	return nil
}

// showNextDrop prints which partition of a family is dropped next.
func showNextDrop(ctx context.Context, e *env, n *node.Node, d retention.Drop) error {
	longest, err := d.Longest(ctx)
	if err != nil {
		return err
	}
	if longest == 0 {
		fmt.Fprintf(e.out, "No partition of %s will be dropped, because a team keeps them forever (%s).\n", d.Name, d.Setting)
		return nil
	}
	closed, err := n.Partitions().Closed(ctx, d.Family, n.DB.Now().AddDate(100, 0, 0))
	if err != nil {
		return err
	}
	if len(closed) == 0 {
		fmt.Fprintf(e.out, "No partition of %s will be dropped, because there are only default partitions.\n", d.Name)
		return nil
	}
	fmt.Fprintf(e.out, "The next drop of %s: those of %s, from %s on. The longest %s of any team is %s.\n", d.Name,
		closed[0], closed[0].To.Add(longest).UTC().Format(time.RFC3339), d.Setting, longest)
	return nil
}

// inBytes formats a number of bytes in a unit in which it has at least two digits.
func inBytes(n int64) string {
	for _, unit := range []string{"B", "KB", "MB", "GB"} {
		if n < 10<<10 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n >>= 10
	}
	return fmt.Sprintf("%d TB", n)
}
