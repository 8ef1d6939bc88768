# Checks and runs examples one after another in one process. Each line of the input is "check" or "run" and the path of
# an example. The values that an example prints are written as JSON, one on each line. The line after them begins with
# the record separator and says whether the example succeeded.
require "json"

module Kernel
  def puts(*values)
    values.each do |value|
      value = value.dup.force_encoding("UTF-8") if value.is_a?(String) # net/http does not know the encoding
      $stdout.write(JSON.generate(value), "\n")
    end
  end
end

$stdout.sync = true
while (line = $stdin.gets)
  action, path = line.chomp.split(" ", 2)
  result = "ok"
  begin
    RubyVM::InstructionSequence.compile_file(path)
    load(path, true) if action == "run"
  rescue StandardError, ScriptError => error
    result = "#{error.class}: #{error.message}".gsub("\n", " ")
  end
  $stdout.write("\x1e", result, "\n")
end
