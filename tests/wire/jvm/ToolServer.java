import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's own tools one after another in one JVM, since starting a JVM for each costs seconds.
 * A line of JSON in: {"class", "args", "stdin"}; a line of JSON out: {"exit", "out", "err"}. The tools are
 * unmodified: what ends a JVM (an exit, its shutdown hooks) is caught where Kafka's tests catch it.
 */
public final class ToolServer {
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1;

        Ended(int code) {
            super("exit " + code, null, false, false);
        }
    }

    public static void main(String[] unused) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = json.readTree(line);
            String[] args = json.convertValue(request.get("args"), String[].class);
            var answer = run(request.get("class").asText(), args, request.get("stdin").asText());
            answers.println(json.writeValueAsString(answer));
            answers.flush();
        }
    }

    private static Map<String, Object> run(String className, String[] args, String stdin) throws Exception {
        List<Runnable> hooks = new ArrayList<>();
        int[] code = {-1};
        Exit.Procedure end = (status, message) -> {
            if (code[0] == -1)
                code[0] = status;
            throw new Ended(status);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        InputStream formerIn = System.in;
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        try {
            try {
                Class.forName(className).getMethod("main", String[].class).invoke(null, (Object) args);
            } catch (InvocationTargetException failure) {
                if (!(failure.getCause() instanceof Ended)) {
                    failure.getCause().printStackTrace();
                    code[0] = 1;
                }
            }
            hooks.forEach(Runnable::run);
        } finally {
            System.setIn(formerIn);
            System.setOut(formerOut);
            System.setErr(formerErr);
        }
        return Map.of(
            "exit", Math.max(code[0], 0),
            "out", out.toString(StandardCharsets.UTF_8),
            "err", err.toString(StandardCharsets.UTF_8));
    }
}
