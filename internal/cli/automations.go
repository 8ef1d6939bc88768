package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
)

func automationsCommand() command {
	return command{use: "automations", group: groupEmail, short: "run an automation with simulated time",
		long:    "Tries automations without a node or a database.",
		example: "postrider automations simulate welcome.json",
		sub: []command{{use: "simulate FILE", short: "run an automation with simulated time",
			long: "Runs an automation with simulated time, and prints its steps, emails and webhook calls. FILE is a JSON " +
				"object with the members automation (steps and connections) and scenario. With --automation, FILE is only a " +
				"scenario, and the other file has the steps and connections. The name - means standard input.",
			example: "postrider automations simulate welcome.json",
			define:  simulateAutomation}}}
}

// simulateAutomation simulates an automation without a node or a database.
func simulateAutomation(flags *pflag.FlagSet) runner {
	graph := flags.String("automation", "", "`file` with the steps and connections, if FILE does not contain them")
	return func(_ context.Context, e *env, words []string) error {
		report, err := simulateFile(words[0], *graph)
		if err != nil {
			return err
		}
		err = e.print(report, func(w io.Writer) error { return printReport(w, report) })
		if err == nil && report.Status == "failed" {
			err = fmt.Errorf("the run would fail (%s): %s", report.Reason, report.Message)
		}
		return err
	}
}

// graphFile is the JSON form of an automation, as in API responses.
type graphFile struct {
	Steps       json.RawMessage `json:"steps"`
	Connections json.RawMessage `json:"connections"`
}

// simulateFile reads a scenario from path and simulates it. The automation's steps are read from graphPath, or from
// path if graphPath is "".
func simulateFile(path, graphPath string) (*simulate.Report, error) {
	text, err := readInput(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Automation *graphFile      `json:"automation"`
		Scenario   json.RawMessage `json:"scenario"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", path, err)
	}
	if graphPath != "" {
		file.Automation = &graphFile{}
		other, err := readInput(graphPath)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(other, file.Automation); err != nil {
			return nil, fmt.Errorf("%s is not JSON: %w", graphPath, err)
		}
		if len(file.Scenario) == 0 {
			file.Scenario = text
		}
	}
	if file.Automation == nil || len(file.Scenario) == 0 {
		return nil, fmt.Errorf("%s must have the members automation and scenario; or use --automation with a second file",
			path)
	}
	g, err := engine.Parse(file.Automation.Steps, file.Automation.Connections)
	if err != nil {
		return nil, err
	}
	s, err := simulate.ParseScenario(file.Scenario, time.Now())
	if err != nil {
		return nil, err
	}
	return simulate.Run(g, s, nil)
}

// readInput returns the content of a file, or of standard input if path is "-".
func readInput(path string) ([]byte, error) {
	file := os.Stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil {
			return nil, err
		}
		defer file.Close()
	}
	// The limit is twice the combined limit for the scenario and the graph, because the file may contain other JSON
	// members and white space.
	const limit = 2 * (simulate.MaxScenario + engine.MaxText)
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && len(text) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return text, err
}

// printReport prints the steps of the simulated run as a table, followed by the emails and the result.
func printReport(w io.Writer, r *simulate.Report) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range r.Entries {
		what := string(e.Step)
		if what == "" {
			what = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", e.At.Format("2006-01-02 15:04:05"), e.After, what, e.Sentence)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(r.Emails) > 0 {
		fmt.Fprintln(w)
	}
	for i, m := range r.Emails {
		var values []string
		for _, name := range slices.Sorted(maps.Keys(m.Variables)) {
			text, err := json.Marshal(m.Variables[name])
			if err != nil {
				return fmt.Errorf("print the variable %s: %w", name, err)
			}
			values = append(values, name+"="+string(text))
		}
		fmt.Fprintln(w, strings.TrimSpace(fmt.Sprintf("email %d: %s to %s, %s  %s", i+1, m.Template, m.To, m.After,
			strings.Join(values, " "))))
	}
	reason := ""
	if r.Reason != "" {
		reason = " (" + string(r.Reason) + ")"
	}
	took := "at once"
	if r.EndedAt.After(r.StartedAt) {
		took = "after " + r.Took
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "%d outputs, variables and bodies are omitted, because the report is limited to %d bytes\n",
			r.Omitted, simulate.MaxReport)
	}
	_, err := fmt.Fprintf(w, "\n%s %s%s: %d emails, %d webhook calls; times are UTC\n", r.Status, took, reason,
		len(r.Emails), len(r.Calls))
	return err
}
