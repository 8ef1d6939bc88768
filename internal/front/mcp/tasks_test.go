package mcp

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

type task struct {
	Task, Tool string
	Arguments  json.RawMessage
}

func readTasks(t *testing.T) (tasks []task) {
	t.Helper()
	text, err := os.ReadFile("testdata/tasks.json")
	if err == nil {
		err = json.Unmarshal(text, &tasks)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// The tasks in testdata/tasks.json say in plain words what people ask for, and which call does it. Each tool has a
// task, and each call matches the tool's schema. scripts/tooltasks asks a language model for the calls.
func TestTasks(t *testing.T) {
	t.Parallel()
	tasks := readTasks(t)
	if len(tasks) < 40 {
		t.Errorf("%d tasks, want at least 40", len(tasks))
	}
	f := newFixture(t, dbtest.SQLite(t))
	untried := map[string]*tool{}
	tools := map[string]*tool{}
	for i := range f.Server.tools {
		tool := &f.Server.tools[i]
		tools[tool.name], untried[tool.name] = tool, tool
	}
	for _, task := range tasks {
		tool := tools[task.Tool]
		if tool == nil {
			t.Errorf("%s: the tool %s does not exist", task.Task, task.Tool)
			continue
		}
		delete(untried, task.Tool)
		if _, err := tool.read(task.Arguments); err != nil {
			t.Errorf("%s: %v", task.Task, err)
		}
	}
	for name := range untried {
		t.Errorf("no task needs the tool %s", name)
	}
}

// An agent with exactly the scopes of a tool may use it: the API refuses none of its operations for lack of a scope.
func TestScopesOfEachToolAreEnough(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	tools := map[string]*tool{}
	for i := range f.Server.tools {
		tools[f.Server.tools[i].name] = &f.Server.tools[i]
	}
	agents := map[teams.Scopes]agent{}
	for _, task := range readTasks(t) {
		tool := tools[task.Tool]
		in := with{}
		if err := json.Unmarshal(task.Arguments, &in); err != nil {
			t.Fatal(err)
		}
		for _, scopes := range [][]teams.Scope{tool.scopes, tool.fallbackScopes} {
			if len(scopes) == 0 {
				continue
			}
			set := teams.NewScopes(scopes...)
			if _, ok := agents[set]; !ok {
				agents[set] = f.agent(f.grant(set.String()))
			}
			if text, _ := agents[set].ask(task.Tool, in); strings.Contains(text, "invalid_permission") {
				t.Errorf("%s with %s: %s", task.Tool, set, text)
			}
		}
	}
}
