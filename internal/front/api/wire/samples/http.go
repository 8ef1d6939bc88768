package samples

import "strings"

// http prints a program that uses the HTTP library of a language.
func (p *printer) http(language string) string {
	target := p.Target()
	switch language {
	case "node":
		return p.fetch(target)
	case "python":
		return p.urllib(target)
	case "ruby":
		return p.netHTTPOfRuby(target)
	}
	return p.streams(target)
}

func (p *printer) fetch(target string) string {
	var b strings.Builder
	b.WriteString("const response = await fetch(`${process.env.URL}" + target + "`, {\n")
	if p.Method != "GET" {
		b.WriteString("  method: '" + p.Method + "',\n")
	}
	b.WriteString("  headers: {\n    Authorization: `Bearer ${process.env.KEY}`,\n")
	if name, v, ok := strings.Cut(p.Header, ": "); ok {
		b.WriteString("    " + singleQuote(name) + ": " + singleQuote(v) + ",\n")
	}
	if p.Body != nil {
		b.WriteString("    'Content-Type': 'application/json',\n")
	}
	b.WriteString("  },\n")
	if p.Body != nil {
		plain := nodeSyntax
		plain.rename = false
		b.WriteString("  body: JSON.stringify(" + plain.text(p.body, 1) + "),\n")
	}
	b.WriteString("});\nconsole.log(response.status, await response.text());")
	return b.String()
}

func (p *printer) urllib(target string) string {
	var b strings.Builder
	b.WriteString("import json\nimport os\nimport urllib.request\n\nrequest = urllib.request.Request(\n" +
		"    os.environ[\"URL\"] + " + doubleQuote(target) + ",\n    method=" + doubleQuote(p.Method) + ",\n" +
		"    headers={\n        \"Authorization\": \"Bearer \" + os.environ[\"KEY\"],\n")
	if name, v, ok := strings.Cut(p.Header, ": "); ok {
		b.WriteString("        " + doubleQuote(name) + ": " + doubleQuote(v) + ",\n")
	}
	if p.Body != nil {
		b.WriteString("        \"Content-Type\": \"application/json\",\n")
	}
	b.WriteString("    },\n")
	if p.Body != nil {
		b.WriteString("    data=json.dumps(" + pythonSyntax.text(p.body, 1) + ").encode(),\n")
	}
	text := b.String() + ")\nwith urllib.request.urlopen(request) as response:\n" +
		"    print(response.status, response.read().decode())"
	if p.Body == nil {
		text = strings.TrimPrefix(text, "import json\n")
	}
	return text
}

func (p *printer) netHTTPOfRuby(target string) string {
	var b strings.Builder
	b.WriteString("require \"json\"\nrequire \"net/http\"\n\nuri = URI(ENV[\"URL\"] + " + rubyQuote(target) + ")\n" +
		"request = Net::HTTP::" + p.Method[:1] + strings.ToLower(p.Method[1:]) + ".new(uri)\n" +
		"request[\"Authorization\"] = \"Bearer #{ENV[\"KEY\"]}\"\n")
	if name, v, ok := strings.Cut(p.Header, ": "); ok {
		b.WriteString("request[" + rubyQuote(name) + "] = " + rubyQuote(v) + "\n")
	}
	if p.Body != nil {
		b.WriteString("request[\"Content-Type\"] = \"application/json\"\nrequest.body = JSON.generate(" +
			rubySyntax.text(p.body, 0) + ")\n")
	}
	text := b.String() + "response = Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == \"https\") do |http|\n" +
		"  http.request(request)\nend\nputs response.code, response.body"
	if p.Body == nil {
		text = strings.TrimPrefix(text, "require \"json\"\n")
	}
	return text
}

// streams prints a PHP program that needs no further library.
func (p *printer) streams(target string) string {
	var b strings.Builder
	b.WriteString("<?php\n\n$context = stream_context_create(['http' => [\n    'method' => " + phpQuote(p.Method) + ",\n" +
		"    'header' => [\n        'Authorization: Bearer ' . getenv('KEY'),\n")
	if p.Header != "" {
		b.WriteString("        " + phpQuote(p.Header) + ",\n")
	}
	if p.Body != nil {
		b.WriteString("        'Content-Type: application/json',\n")
	}
	b.WriteString("    ],\n")
	if p.Body != nil {
		b.WriteString("    'content' => json_encode(" + phpSyntax.text(p.body, 1) + "),\n")
	}
	b.WriteString("    'ignore_errors' => true,\n]]);\necho file_get_contents(getenv('URL') . " + phpQuote(target) +
		", false, $context);")
	return b.String()
}
