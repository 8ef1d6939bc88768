package mcp

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The tasks in testdata/tasks.json say in plain words what people ask for, and which call does it. Each tool has a task,
// and each call matches the tool's schema. scripts/tooltasks asks a language model for the calls.
func TestTasks(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/tasks.json")
	if err != nil {
		t.Fatal(err)
	}
	var tasks []struct {
		Task, Tool string
		Arguments  json.RawMessage
	}
	if err := json.Unmarshal(text, &tasks); err != nil {
		t.Fatal(err)
	}
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
