package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/platform/partitions"
)

func storageCommand() command {
	return command{use: "storage", group: groupInspect, source: ofNode,
		short: "show the sizes of the database's tables, and on PostgreSQL their partitions",
		long: "Shows the sizes of all tables of the database. On PostgreSQL, it also shows the partitions, which of " +
			"them are missing, and which are dropped next.",
		example: "postrider storage",
		define:  beside("storage", noFlags(showStorage))}
}

// showStorage prints the sizes of all tables. On PostgreSQL, showStorage also prints the partitions, and which of them
// is dropped next.
func showStorage(ctx context.Context, e *env, n *node.Node, _ []string) error {
	sizes, err := n.DB.Sizes(ctx)
	if err != nil {
		return fmt.Errorf("read the sizes of the tables: %w", err)
	}
	r := storageReport{Tables: []tableObject{}}
	for _, table := range slices.SortedFunc(maps.Keys(sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(sizes[b], sizes[a]), cmp.Compare(a, b))
	}) {
		r.Tables = append(r.Tables, tableObject{table, sizes[table]})
	}
	if !n.DB.Alone() {
		if err := r.addPartitions(ctx, n); err != nil {
			return err
		}
	}
	return e.print(r, r.write)
}

// storageReport says how much space the data takes. The partitions and what follows are nil on SQLite.
type storageReport struct {
	Tables     []tableObject     `json:"tables"`
	Partitions []partitionObject `json:"partitions"`
	Missing    []missingObject   `json:"missing_partitions"`
	Drops      []dropObject      `json:"next_drops"`
}

type tableObject struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// partitionObject is a partition. A default partition has no times.
type partitionObject struct {
	Name  string     `json:"name"`
	From  *time.Time `json:"from"`
	To    *time.Time `json:"to"`
	Rows  int64      `json:"rows"` // about
	Bytes int64      `json:"bytes"`
}

// missingObject is a partition that a node should have made in advance.
type missingObject struct {
	Tables string     `json:"tables"`
	From   *time.Time `json:"from"`
	To     *time.Time `json:"to"`
	span   string
}

// dropObject says when the next partition of some tables is dropped. Without a time, none is.
type dropObject struct {
	Tables    string     `json:"tables"`
	Setting   string     `json:"setting"`
	Partition *string    `json:"partition"`
	DropsAt   *time.Time `json:"drops_at"`
	sentence  string
}

// addPartitions adds the partitions, those that are missing, and the next drops.
func (r *storageReport) addPartitions(ctx context.Context, n *node.Node) error {
	all, err := n.Partitions().List(ctx)
	if err != nil {
		return err
	}
	r.Partitions, r.Missing, r.Drops = []partitionObject{}, []missingObject{}, []dropObject{}
	for _, p := range all {
		o := partitionObject{Name: p.Name, Rows: p.Rows, Bytes: p.Bytes}
		if !p.Default {
			o.From, o.To = moment(p.From), moment(p.To)
		}
		r.Partitions = append(r.Partitions, o)
	}
	for _, f := range partitions.Families {
		missing, err := n.Partitions().Ahead(ctx, f)
		if err != nil {
			return err
		}
		for _, span := range missing {
			r.Missing = append(r.Missing, missingObject{f.Name, moment(span.From), moment(span.To), span.String()})
		}
	}
	for _, d := range n.Retention(n.DB.Now).Drops() {
		o, err := nextDrop(ctx, n, d)
		if err != nil {
			return err
		}
		r.Drops = append(r.Drops, o)
	}
	return nil
}

// nextDrop returns which partition of a family is dropped next.
func nextDrop(ctx context.Context, n *node.Node, d retention.Drop) (dropObject, error) {
	o := dropObject{Tables: d.Name, Setting: d.Setting}
	longest, err := d.Longest(ctx)
	if err != nil {
		return o, err
	}
	if longest == 0 {
		o.sentence = fmt.Sprintf("No partition of %s will be dropped, because a team keeps them forever (%s).", d.Name,
			d.Setting)
		return o, nil
	}
	closed, err := n.Partitions().Closed(ctx, d.Family, n.DB.Now().AddDate(100, 0, 0))
	if err != nil {
		return o, err
	}
	if len(closed) == 0 {
		o.sentence = fmt.Sprintf("No partition of %s will be dropped, because there are only default partitions.", d.Name)
		return o, nil
	}
	at := closed[0].To.Add(longest)
	o.Partition, o.DropsAt = new(closed[0].String()), moment(at)
	o.sentence = fmt.Sprintf("The next drop of %s: those of %s, from %s on. The longest %s of any team is %s.", d.Name,
		closed[0], at.UTC().Format(time.RFC3339), d.Setting, longest)
	return o, nil
}

// write writes the report as text.
func (r storageReport) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "table\tsize")
	for _, t := range r.Tables {
		fmt.Fprintf(w, "%s\t%s\n", t.Name, inBytes(t.Bytes))
	}
	if err := w.Flush(); err != nil || r.Partitions == nil {
		return err
	}
	fmt.Fprintln(w, "\npartition\tids from (UTC)\tto\trows, about\tsize")
	for _, p := range r.Partitions {
		from, to := "default", ""
		if p.From != nil {
			from, to = clock(*p.From), clock(*p.To)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", p.Name, from, to, p.Rows, inBytes(p.Bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, p := range r.Partitions {
		if p.From == nil && p.Rows > 0 {
			fmt.Fprintf(out, "The default partition %s has rows: those with ids of an unusual time, those kept from a "+
				"dropped partition, and those whose partition is missing. A job moves the last ones within 15 minutes.\n",
				p.Name)
		}
	}
	for _, m := range r.Missing {
		fmt.Fprintf(out, "MISSING: the partitions of %s of %s. The node's log says why they cannot be made.\n", m.Tables,
			m.span)
	}
	for _, d := range r.Drops {
		fmt.Fprintln(out, d.sentence)
	}
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
