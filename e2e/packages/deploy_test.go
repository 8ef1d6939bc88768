//go:build packages

package packages

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/blob/blobtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

const helm = "helm.sh/helm/v3/cmd/helm@v3.22.0"

// yamlToJSON decodes all documents of a YAML text, with the library of docker-compose.
func yamlToJSON(t *testing.T, text string, to any) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "python3", "-c",
		"import json,sys,yaml; print(json.dumps([d for d in yaml.safe_load_all(sys.stdin) if d]))")
	c.Stdin = strings.NewReader(text)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("read YAML: %v\n%s", err, text)
	}
	if err := json.Unmarshal(out, to); err != nil {
		t.Fatal(err)
	}
}

// composeService holds the fields of a service that these tests use.
type composeService struct {
	Command     []string
	Environment map[string]string
}

// composeConfig returns what docker-compose makes of a compose file, with the given variables.
func composeConfig(t *testing.T, name string, vars ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "docker-compose", "--file", "../../deploy/compose/"+name+"/compose.yaml", "config")
	c.Env = append(os.Environ(), vars...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func composeServices(t *testing.T, name string, vars ...string) map[string]composeService {
	t.Helper()
	text, err := composeConfig(t, name, vars...)
	if err != nil {
		t.Fatalf("docker-compose config of %s: %v\n%s", name, err, text)
	}
	var documents []struct{ Services map[string]composeService }
	yamlToJSON(t, text, &documents)
	return documents[0].Services
}

// Compose files name the variables that are missing.
func TestComposeNeedsVariables(t *testing.T) {
	for _, name := range []string{"one", "three"} {
		if out, err := composeConfig(t, name); err == nil || !strings.Contains(out, ": set it to ") {
			t.Errorf("%s without variables: %v\n%s", name, err, out)
		}
	}
}

// releasedProgram returns the released program for this machine.
func releasedProgram(t *testing.T) string {
	t.Helper()
	return filepath.Join(unpack(t, "amd64"), "rootfs/usr/bin/postrider")
}

// environment returns the variables of a service, some of which are replaced.
func environment(s composeService, replaced map[string]string) []string {
	env := []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range s.Environment {
		if _, ok := replaced[name]; !ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range replaced {
		env = append(env, name+"="+value)
	}
	return env
}

// The node of the first compose file starts with its command and listens at the ports that the file publishes. It gets
// no certificate, because no authority is there.
func TestComposeOfOneNode(t *testing.T) {
	if !inside(t) {
		return
	}
	s := composeServices(t, "one", "POSTRIDER_HOSTNAME=mail.example.com", "POSTRIDER_ACME=true")["postrider"]
	env := environment(s, map[string]string{"POSTRIDER_DATA_DIR": t.TempDir(), "POSTRIDER_DNS_SERVERS": "127.0.0.1",
		"POSTRIDER_ACME_DIRECTORY": "https://127.0.0.1:1/directory"})
	startProcess(t, env, releasedProgram(t), s.Command...)
	awaitReady(t, "http://127.0.0.1:80")
	for _, port := range []string{"25", "443", "465", "587"} {
		if err := listens("127.0.0.1:" + port); err != nil {
			t.Errorf("port %s: %v", port, err)
		}
	}
}

// The nodes of the second compose file share a database and a bucket: an email sent to one of them, with an attachment
// in the bucket, is read from another.
func TestComposeOfThreeNodes(t *testing.T) {
	blobtest.VersitygwProgram(t) // compiles it, where the network is reachable
	if !inside(t) {
		return
	}
	services := composeServices(t, "three", "POSTRIDER_HOSTNAME=mail.example.com", "POSTGRES_PASSWORD=pass1234",
		"BUCKET_SECRET=bucket1234", "POSTRIDER_SECRET_KEY="+strings.Repeat("ab", 32))
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost postgres bucket\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "mount", "--bind", hosts, "/etc/hosts") // seen only by this process and its children
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "/etc/hosts").CombinedOutput(); err != nil {
			t.Errorf("unmount /etc/hosts: %v\n%s", err, out)
		}
	})
	startPostgres(t, services["postgres"])
	startBucket(t, services["bucket"])

	program := releasedProgram(t)
	replaced := func(more ...string) map[string]string {
		all := map[string]string{"POSTRIDER_DATA_DIR": t.TempDir(), "POSTRIDER_DNS_SERVERS": "127.0.0.1"}
		if len(more) > 0 {
			all["POSTRIDER_HTTP_LISTEN"] = more[0]
		}
		return all
	}
	urls := map[string]string{}
	for i, name := range []string{"node1", "node2", "node3"} {
		address := fmt.Sprintf("127.0.0.1:%d", 8081+i) // in containers, each node has its own port 8080
		startProcess(t, environment(services[name], replaced(address)), program, services[name].Command...)
		urls[name] = "http://" + address
	}
	for _, url := range urls {
		awaitReady(t, url)
	}
	keys := exec.CommandContext(t.Context(), program, "keys", "create", "--team", "Example", "--create-team")
	keys.Env = environment(services["node1"], replaced())
	keys.Dir = t.TempDir()
	out, err := keys.Output()
	if err != nil {
		t.Fatalf("keys create: %v", err)
	}
	key := strings.TrimSpace(string(out))
	content := base64.StdEncoding.EncodeToString([]byte("a file in the bucket"))
	var sent struct{ ID string }
	call(t, "POST", urls["node2"]+"/emails", key, `{"from":"onboarding@resend.dev","to":"delivered@resend.dev",
		"subject":"s","text":"t","attachments":[{"filename":"a.txt","content":"`+content+`"}]}`, &sent)
	var read struct{ Subject string }
	call(t, "GET", urls["node3"]+"/emails/"+sent.ID, key, "", &read)
	if read.Subject != "s" {
		t.Errorf("node3 reads %+v", read)
	}
}

// startPostgres starts a server at the port and with the user and database of the compose file.
func startPostgres(t *testing.T, s composeService) {
	t.Helper()
	server, err := dbtest.Launch("", 5432)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Remove)
	e := s.Environment
	for _, statement := range []string{
		"CREATE ROLE " + e["POSTGRES_USER"] + " LOGIN PASSWORD '" + e["POSTGRES_PASSWORD"] + "'",
		"CREATE DATABASE " + e["POSTGRES_DB"] + " OWNER " + e["POSTGRES_USER"]} {
		run(t, "psql", server.URL, "--command", statement)
	}
}

// startBucket runs the command of the bucket's service in a folder.
func startBucket(t *testing.T, s composeService) {
	t.Helper()
	folder := t.TempDir()
	for _, name := range []string{"buckets/postrider", "attributes"} {
		if err := os.MkdirAll(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	args := slices.Clone(s.Command)
	for i := range args {
		args[i] = strings.Replace(args[i], "/data/", folder+"/", 1)
	}
	startProcess(t, environment(s, nil), blobtest.VersitygwProgram(t), args...)
	eventually(t, "the bucket answers", func() bool { return listens("127.0.0.1:7070") == nil })
}

// The chart passes Helm's checks, has all objects that it should, and names missing values.
func TestHelm(t *testing.T) {
	const chart, example = "../../deploy/helm/postrider", "../../deploy/helm/example-values.yaml"
	tool := filepath.Join(t.TempDir(), "helm")
	// Like helm's own build, this one names the Kubernetes version that the chart is checked for.
	flags := "-s -w"
	for _, name := range []string{"pkg/chartutil", "pkg/lint/rules"} {
		flags += fmt.Sprintf(" -X helm.sh/helm/v3/%[1]s.k8sVersionMajor=1 -X helm.sh/helm/v3/%[1]s.k8sVersionMinor=30", name)
	}
	install := exec.CommandContext(t.Context(), "go", "install", "-ldflags", flags, helm)
	install.Env = append(os.Environ(), "GOBIN="+filepath.Dir(tool), "GOFLAGS=-trimpath")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install helm: %v\n%s", err, out)
	}
	if out := run(t, tool, "lint", "--strict", chart, "--values", example); !strings.Contains(out, "0 chart(s) failed") {
		t.Errorf("helm lint: %s", out)
	}
	type object struct {
		Kind string
		Spec struct {
			Replicas int
			Ports    []struct {
				Name string
				Port int
			}
		}
	}
	behindIngress := []string{"Deployment", "Ingress", "PodDisruptionBudget", "Service", "Service", "ServiceAccount"}
	ownHTTPS := []string{"--set", "https.enabled=true,http.ingress.enabled=false,http.service.type=LoadBalancer"}
	for _, x := range []struct {
		args, kinds []string
		ports       string
	}{{nil, behindIngress, "http 80 smtp 25 submission 587 submissions 465 "},
		{ownHTTPS, slices.DeleteFunc(slices.Clone(behindIngress), func(kind string) bool { return kind == "Ingress" }),
			"http 80 https 443 smtp 25 submission 587 submissions 465 "}} {
		var objects []object
		text := run(t, tool, append([]string{"template", "mail", chart, "--values", example}, x.args...)...)
		yamlToJSON(t, text, &objects)
		var kinds []string
		ports := ""
		for _, o := range objects {
			kinds = append(kinds, o.Kind)
			if o.Kind == "Deployment" && o.Spec.Replicas != 3 {
				t.Errorf("%d replicas", o.Spec.Replicas)
			}
			for _, p := range o.Spec.Ports {
				ports += fmt.Sprintf("%s %d ", p.Name, p.Port)
			}
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, x.kinds) || ports != x.ports ||
			strings.Contains(text, "POSTRIDER_HTTPS_LISTEN") != (x.args != nil) {
			t.Errorf("with %q, the chart has %q and the ports %s", x.args, kinds, ports)
		}
	}
	for setting, say := range map[string]string{"https.enabled=true": "exclude each other",
		"https.enabled=true,http.ingress.enabled=false,tlsSecret=": "needs certificates"} {
		out, err := exec.CommandContext(t.Context(), tool, "template", "mail", chart, "--values", example, "--set",
			setting).CombinedOutput()
		if err == nil || !strings.Contains(string(out), say) {
			t.Errorf("with %s: %v\n%s", setting, err, out)
		}
	}
	for _, missing := range []string{"settings.hostname", "settings.public_url", "settings.blob_url", "existingSecret"} {
		out, err := exec.CommandContext(t.Context(), tool, "template", "mail", chart, "--values", example, "--set",
			missing+"=").CombinedOutput()
		if err == nil || !strings.Contains(string(out), missing+" is missing") {
			t.Errorf("without %s: %v\n%s", missing, err, out)
		}
	}
}
