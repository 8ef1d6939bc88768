// Tooltasks checks whether a language model picks the right tools of the MCP server from their descriptions.
//
//	go run ./scripts/tooltasks --url http://localhost:3000/mcp --key re_... --ask ./ask-model
//
// It lists the tools of a running node, and runs the command --ask once for each task of
// internal/front/mcp/testdata/tasks.json. The command gets a JSON object with "task" and "tools" on its standard input,
// and prints a JSON object with "tool" and "arguments", as the model chose them.
//
// Tooltasks prints each task that the model answered otherwise, and exits with code 1 if the model picked a wrong tool or
// wrong arguments for more than one task in ten. Texts that a model may word in its own way, such as scheduled_at, count
// as right if they are present.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"reflect"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ownWords are the arguments that models word in their own way.
var ownWords = map[string]bool{"scheduled_at": true, "created_after": true, "subject": true, "text": true}

// call is a call of a tool.
type call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// task is a task in plain words, with the call that does it.
type task struct {
	Task string `json:"task"`
	call
}

func main() {
	url := flag.String("url", "http://localhost:3000/mcp", "`URL` of the MCP server")
	key := flag.String("key", "", "API `key` with full access")
	ask := flag.String("ask", "", "`command` that asks the model")
	file := flag.String("tasks", "internal/front/mcp/testdata/tasks.json", "`file` with the tasks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *url, *key, *ask, *file); err != nil {
		fmt.Fprintln(os.Stderr, "tooltasks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, key, ask, file string) error {
	if ask == "" {
		return fmt.Errorf("--ask must name a command that asks the model")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var tasks []task
	if err := json.Unmarshal(text, &tasks); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	tools, err := list(ctx, url, key)
	if err != nil {
		return fmt.Errorf("list the tools of %s: %w", url, err)
	}
	wrong := 0
	for _, t := range tasks {
		got, err := pick(ctx, ask, t.Task, tools)
		if err != nil {
			return fmt.Errorf("ask for %q: %w", t.Task, err)
		}
		if !same(t.call, got) {
			wrong++
			fmt.Printf("%s\n  want %s %v\n  got  %s %v\n", t.Task, t.Tool, t.Arguments, got.Tool, got.Arguments)
		}
	}
	fmt.Printf("%d of %d tasks were answered as expected\n", len(tasks)-wrong, len(tasks))
	if wrong*10 > len(tasks) {
		return fmt.Errorf("%d tasks were answered otherwise", wrong)
	}
	return nil
}

// bearer adds the API key to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

func list(ctx context.Context, url, key string) (all []*mcp.Tool, err error) {
	c := mcp.NewClient(&mcp.Implementation{Name: "tooltasks", Version: "1"}, nil)
	session, err := c.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true,
		HTTPClient: &http.Client{Transport: bearer(key)}}, nil)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	for t, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// pick asks the model which call does a task.
func pick(ctx context.Context, ask, what string, tools []*mcp.Tool) (got call, err error) {
	in, err := json.Marshal(map[string]any{"task": what, "tools": tools})
	if err != nil {
		return got, err
	}
	c := exec.CommandContext(ctx, ask)
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		return got, err
	}
	return got, json.Unmarshal(out, &got)
}

// same reports whether a call does what was wanted.
func same(want, got call) bool {
	if want.Tool != got.Tool || len(want.Arguments) != len(got.Arguments) {
		return false
	}
	for name, value := range want.Arguments {
		g, ok := got.Arguments[name]
		if one, isText := g.(string); isText {
			if _, isList := value.([]any); isList {
				g = []any{one} // the tools accept both
			}
		}
		if !ok || !ownWords[name] && !reflect.DeepEqual(value, g) {
			return false
		}
	}
	return true
}
