import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.ClassSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/**
 * Runs the tests that a file names, a line each: `Class` or `Class#method`; `-` before one leaves it out. Prints a line
 * for each test as it ends: how, which one, its milliseconds, and of a failure the message.
 */
public final class RunTests {
    public static void main(String[] args) throws Exception {
        List<DiscoverySelector> wanted = new ArrayList<>();
        Set<String> unwanted = new HashSet<>();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            if (line.startsWith("-")) {
                unwanted.add(line.substring(1));
            } else if (line.contains("#")) {
                wanted.add(DiscoverySelectors.selectMethod(line));
            } else {
                wanted.add(DiscoverySelectors.selectClass(line));
            }
        }
        PostDiscoveryFilter left = test -> {
            Object source = test.getSource().orElse(null);
            if (source instanceof MethodSource) {
                MethodSource method = (MethodSource) source;
                boolean out = unwanted.contains(method.getClassName() + "#" + method.getMethodName());
                return FilterResult.includedIf(!out && !unwanted.contains(method.getClassName()));
            }
            return FilterResult.includedIf(
                    !(source instanceof ClassSource) || !unwanted.contains(((ClassSource) source).getClassName()));
        };
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(wanted)
                .filters(left)
                .configurationParameter("junit.jupiter.execution.timeout.default", args[1])
                .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
                .build();
        LauncherFactory.create().execute(request, new Printer());
        System.out.println("END");
        System.out.flush();
        Runtime.getRuntime().exit(0); // threads that a test has left do not keep the JVM
    }

    private static final class Printer implements TestExecutionListener {
        private final java.util.Map<String, Long> began = new java.util.concurrent.ConcurrentHashMap<>();

        @Override
        public void executionStarted(TestIdentifier test) {
            began.put(test.getUniqueId(), System.currentTimeMillis());
        }

        @Override
        public void executionSkipped(TestIdentifier test, String reason) {
            print("SKIPPED", test, reason);
        }

        @Override
        public void executionFinished(TestIdentifier test, TestExecutionResult result) {
            boolean passed = result.getStatus() == TestExecutionResult.Status.SUCCESSFUL;
            if (passed && !test.isTest()) {
                return;
            }
            String how = passed ? "PASSED" : result.getStatus().name();
            print(how, test, result.getThrowable().map(Printer::told).orElse(""));
        }

        private static String told(Throwable error) {
            StringBuilder text = new StringBuilder(error.toString());
            for (StackTraceElement at : error.getStackTrace()) {
                if (at.getClassName().contains("curator")) {
                    text.append(" at ").append(at);
                }
                if (text.length() > 900) {
                    break;
                }
            }
            return text.toString();
        }

        private void print(String how, TestIdentifier test, String more) {
            String name = test.getSource()
                    .map(source -> source instanceof MethodSource
                            ? ((MethodSource) source).getClassName() + "#" + ((MethodSource) source).getMethodName()
                            : test.getDisplayName())
                    .orElse(test.getDisplayName());
            long ms = System.currentTimeMillis() - began.getOrDefault(test.getUniqueId(), System.currentTimeMillis());
            System.out.println(how + "\t" + name + "\t" + ms + "\t" + more.replaceAll("\\s+", " "));
            System.out.flush();
        }
    }
}
