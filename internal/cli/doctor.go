package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/node/doctor/gather"
)

// fromKeyVariable is the variable with the API key of the installation that looks from outside.
const fromKeyVariable = "POSTRIDER_FROM_KEY"

// Exit codes of the command doctor.
const (
	exitWarnings = 1
	exitFailures = 2
	exitUnable   = 3
)

func doctorCommand() command {
	return command{use: "doctor", group: groupInspect, source: ofNode, usageExit: exitUnable,
		short: "check the installation: DNS, ports, certificates, disks, database, key, backup",
		long: "Checks the installation as other servers see it, and says what each finding means and what to do. The " +
			"exit code is 0 if nothing is wrong, 1 if there are warnings, 2 if there are failures, and 3 if doctor cannot run.",
		example: "postrider doctor\npostrider doctor --from https://mail.example.net --domain example.com",
		define:  defineDoctor}
}

// defineDoctor adds the flags of the command doctor.
func defineDoctor(flags *pflag.FlagSet) runner {
	x := node.Examination{Version: Version}
	flags.StringVar(&x.Team, "team", "", "check the domains of this `team` only (id or name)")
	flags.StringVar(&x.Domain, "domain", "", "check this `domain` of a team only")
	from := flags.String("from", "", "`URL` of another installation of Postrider, which looks from outside")
	key := flags.String("from-key", "", "API `key` of that installation, with full access (default: "+fromKeyVariable+")")
	return func(ctx context.Context, e *env, _ []string) error {
		loaded, err := e.read()
		if err != nil {
			return &exitError{exitUnable, err}
		}
		c := loaded.Config
		if x.Team != "" && x.Domain != "" {
			return &exitError{exitUnable, errors.New("--team and --domain exclude each other")}
		}
		if *from != "" {
			if err := checkFrom(*from); err != nil {
				return &exitError{exitUnable, err}
			}
			x.From = &gather.From{URL: *from, Key: cmp.Or(*key, e.getenv(fromKeyVariable))}
			if x.From.Key == "" {
				return &exitError{exitUnable, errors.New("--from needs an API key of the other installation: set " +
					fromKeyVariable + ", or use --from-key")}
			}
		}
		x.Domain = strings.ToLower(strings.TrimSuffix(x.Domain, "."))
		x.DataOnly = adaptToDev(e, &loaded)
		return examine(ctx, e, c, x)
	}
}

// adaptToDev reports whether the settings lead to the data of `postrider dev`, and says which data is examined. The
// data may serve both commands, so a configured hostname stands for a node that `postrider serve` runs.
func adaptToDev(e *env, loaded *config.Loaded) bool {
	c := loaded.Config
	if c.DatabaseURL != "" || slices.ContainsFunc(loaded.Values, func(v config.Value) bool {
		return v.Key == "hostname" && (v.From == config.FromFile || v.From == config.FromVariable || v.From == config.FromFlag)
	}) {
		return false
	}
	ofDev := devDefaults["data_dir"]
	switch {
	case fileperm.Exists(devKeyFile(c.DataDir)):
		fmt.Fprintf(e.errOut, "%s has the data of `postrider dev`, which needs no DNS records, ports and certificates, so doctor "+
			"examines only the data.\nTo examine the settings of `postrider serve`, set hostname.\n", c.DataDir)
		return true
	case !fileperm.Exists(filepath.Join(c.DataDir, "postrider.db")) && fileperm.Exists(devKeyFile(ofDev)):
		fmt.Fprintf(e.errOut, "Doctor examines the settings of `postrider serve`. For the data of `postrider dev`, run: "+
			"postrider doctor --data-dir %s\n", ofDev)
	}
	return false
}

// examine checks the installation and prints the findings.
func examine(ctx context.Context, e *env, c config.Config, x node.Examination) error {
	r, err := node.Examine(ctx, c, newLogger(c, e.errOut), x)
	if err == nil {
		err = e.print(r, func(io.Writer) error { return printFindings(e, &r) })
	}
	switch {
	case err != nil:
		return &exitError{exitUnable, err}
	case r.Status == doctor.Failure:
		return &exitError{exitFailures, errReported}
	case r.Status == doctor.Warning:
		return &exitError{exitWarnings, errReported}
	}
	return nil
}

// checkFrom returns an error if an API key would be sent in clear to the URL of another installation.
func checkFrom(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("--from: %q must be a URL such as https://mail.example.net", text)
	}
	ip, err := netip.ParseAddr(u.Hostname())
	if u.Scheme == "http" && (err != nil || !ip.IsLoopback()) && u.Hostname() != "localhost" {
		return errors.New("--from: must begin with https://, because the API key would be sent in clear")
	}
	return nil
}

// sections are the parts of the output, with the worst findings first. Colors are used on terminals only.
var sections = []struct {
	status       doctor.Status
	title, color string
}{
	{doctor.Failure, "Failures", "\x1b[31;1m"},
	{doctor.Warning, "Warnings", "\x1b[33;1m"},
	{doctor.NotChecked, "Not checked", "\x1b[36m"},
	{doctor.OK, "OK", "\x1b[32m"},
}

const reportWidth = 100 // columns

// printFindings prints the findings for people.
func printFindings(e *env, r *doctor.Report) error {
	var text strings.Builder
	color := usesColor(e)
	for _, s := range sections {
		all := r.Worst(s.status)
		if len(all) == 0 {
			continue
		}
		title := fmt.Sprintf("%s (%d)", s.title, len(all))
		if color {
			title = s.color + title + "\x1b[0m"
		}
		fmt.Fprintf(&text, "%s\n\n", title)
		for _, f := range all {
			// Name servers, mail hosts and teams have chosen parts of these texts.
			fmt.Fprintf(&text, "  %s: %s\n", f.ID, printable(f.Subject))
			wrap(&text, "    ", printable(f.Meaning))
			if f.Advice != "" {
				wrap(&text, "    To do: ", printable(f.Advice))
			}
		}
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%s: %d failures, %d warnings, %d not checked, %d ok\n", r.Hostname, r.Counts[doctor.Failure],
		r.Counts[doctor.Warning], r.Counts[doctor.NotChecked], r.Counts[doctor.OK])
	_, err := io.WriteString(e.out, text.String())
	return err
}

// wrap writes a text in lines of at most reportWidth columns. The first line begins with the given text, and the others
// with as many spaces as that text does.
func wrap(w *strings.Builder, first, text string) {
	line := first
	indent := strings.Repeat(" ", len(first)-len(strings.TrimLeft(first, " "))+2)
	begun := false
	for word := range strings.FieldsSeq(text) {
		if begun && len(line)+1+len(word) > reportWidth {
			w.WriteString(line + "\n")
			line, begun = indent, false
		}
		if begun {
			line += " "
		}
		line, begun = line+word, true
	}
	w.WriteString(line + "\n")
}

// usesColor reports whether the output is a terminal that shows colors.
func usesColor(e *env) bool {
	f, ok := e.out.(*os.File)
	if !ok || e.getenv("NO_COLOR") != "" || e.getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
